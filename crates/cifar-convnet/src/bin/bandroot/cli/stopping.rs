//! The law of a random number of runs, as it is written.

use dp_train::accounting::stopping::StoppingLaw;

/// Reads `mean=20,shape=1`, in any order.
pub(crate) fn parse(text: &str) -> Result<StoppingLaw, String> {
    let usage = || format!("{text:?} is no law of the number of runs; write mean=20,shape=1");
    let (mut mean, mut shape) = (None, None);
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(usage)?;
        let value: f64 = value.trim().parse().map_err(|_| usage())?;
        let place = match name.trim() {
            "mean" => &mut mean,
            "shape" => &mut shape,
            _ => return Err(usage()),
        };
        if place.replace(value).is_some() {
            return Err(usage());
        }
    }
    let (mean, shape) = mean.zip(shape).ok_or_else(usage)?;
    StoppingLaw::new(mean, shape).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_are_read_and_nonsense_is_not() {
        let law = parse("mean=20,shape=1").unwrap();
        assert_eq!((law.mean(), law.shape()), (20.0, 1.0));
        assert_eq!(parse("shape=1, mean=20").unwrap(), law);
        for text in
            ["", "20", "mean=20", "mean=20,mean=3,shape=1", "mean=x,shape=1", "mean=20,size=1"]
        {
            assert!(parse(text).unwrap_err().contains("mean=20,shape=1"), "{text}");
        }
        assert!(parse("mean=1,shape=1").unwrap_err().contains("mean above 1"));
    }
}
