//! What a data set holds, in numbers.

use serde::Serialize;

use crate::terminal::table::Table;
use cifar_convnet::data::{Dataset, Numbers, Shape, Split};

/// Most channels whose numbers stand in a line; JSON has all of them.
const MOST_SHOWN: usize = 16;

/// The numbers of a data set.
#[derive(Debug, Serialize)]
pub(crate) struct Description {
    name: &'static str,
    channels: usize,
    height: usize,
    width: usize,
    classes: Vec<String>,
    train: Part,
    test: Part,
}

/// The numbers of one split.
#[derive(Debug, Serialize)]
struct Part {
    examples: usize,
    per_class: Vec<usize>,
    /// Per channel, of the bytes over 255, or of the numbers as they are.
    mean: Vec<f64>,
    /// Per channel, over all pixels of all images.
    standard_deviation: Vec<f64>,
    /// Of all images followed by all labels.
    md5: String,
}

impl Description {
    /// Counts everything. About 0.5 s for CIFAR-10.
    pub(crate) fn of(data: &Dataset) -> Self {
        let Shape { channels, height, width } = data.shape;
        Self {
            name: data.name,
            channels,
            height,
            width,
            classes: data.classes.clone(),
            train: Part::of(&data.train, data),
            test: Part::of(&data.test, data),
        }
    }

    /// One line on the whole, a table of the classes, and one line on the channels of each split.
    pub(crate) fn to_text(&self) -> String {
        let Self { name, channels, height, width, train, test, .. } = self;
        let shape = Shape { channels: *channels, height: *height, width: *width };
        let mut table = Table::new(&["label", "class", "train", "test"]);
        for (label, class) in self.classes.iter().enumerate() {
            let counts = [train, test].map(|part| part.per_class[label].to_string());
            let [train, test] = counts;
            table.push(vec![label.to_string(), class.clone(), train, test]);
        }
        table.push(vec![
            String::new(),
            "all".to_owned(),
            train.examples.to_string(),
            test.examples.to_string(),
        ]);
        let mut text = format!(
            "{name}: {} of {}\n\n{}\n",
            if shape.is_vector() { "vectors" } else { "images" },
            shape,
            table.to_text()
        );
        for (split, part) in [("train", train), ("test", test)] {
            let numbers = |values: &[f64]| {
                let more = if values.len() > MOST_SHOWN { " ..." } else { "" };
                let shown = values.iter().take(MOST_SHOWN).map(|value| format!("{value:.5}"));
                shown.collect::<Vec<_>>().join(" ") + more
            };
            text += &format!(
                "{split:<5}  mean {}  standard deviation {}  MD5 {}\n",
                numbers(&part.mean),
                numbers(&part.standard_deviation),
                part.md5
            );
        }
        text
    }
}

impl Part {
    fn of(split: &Split, data: &Dataset) -> Self {
        let (mean, standard_deviation) = match split.numbers() {
            Numbers::Bytes(bytes) => of_bytes(bytes, data.shape),
            Numbers::Floats(floats, _) => of_floats(floats, data.shape),
        };
        let mut per_class = vec![0; data.classes.len()];
        split.labels().iter().for_each(|&label| per_class[usize::from(label)] += 1);
        Self { examples: split.len(), per_class, mean, standard_deviation, md5: split.md5() }
    }
}

/// Mean and standard deviation of every channel, of the bytes over 255.
fn of_bytes(bytes: &[u8], shape: Shape) -> (Vec<f64>, Vec<f64>) {
    // Sums of integers: exact in any order.
    let mut sums = vec![[0u64; 2]; shape.channels];
    for (at, plane) in bytes.chunks_exact(shape.height * shape.width).enumerate() {
        let sums = &mut sums[at % shape.channels];
        for &byte in plane {
            sums[0] += u64::from(byte);
            sums[1] += u64::from(byte) * u64::from(byte);
        }
    }
    let count = (bytes.len() / shape.channels) as f64;
    let mean = |sums: &[u64; 2]| sums[0] as f64 / count;
    let variance = |sums: &[u64; 2]| sums[1] as f64 / count - mean(sums) * mean(sums);
    let deviation = |sums: &[u64; 2]| variance(sums).max(0.0).sqrt() / 255.0;
    (sums.iter().map(|sums| mean(sums) / 255.0).collect(), sums.iter().map(deviation).collect())
}

/// Mean and standard deviation of every channel, of the numbers as the files hold them.
fn of_floats(floats: &[f32], shape: Shape) -> (Vec<f64>, Vec<f64>) {
    let count = (floats.len() / shape.channels) as f64;
    let planes = |channel: usize| {
        let planes = floats.chunks_exact(shape.height * shape.width);
        planes.skip(channel).step_by(shape.channels).flatten().map(|&x| f64::from(x))
    };
    let moments = |channel: usize| {
        let mean = planes(channel).sum::<f64>() / count;
        // Twice through the data: the difference of large sums would lose the digits.
        let squares = planes(channel).map(|x| (x - mean) * (x - mean)).sum::<f64>();
        (mean, (squares / count).sqrt())
    };
    (0..shape.channels).map(moments).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cifar_convnet::data::Scaling;

    #[test]
    fn floats_are_described_as_they_stand_in_the_files() {
        let shape = Shape::vector(2);
        let scaling = Scaling::new(&[5.0], &[3.0], 2).unwrap();
        let split =
            |floats| Split::new(Numbers::Floats(floats, scaling.clone()), vec![0, 1], shape);
        let (train, test) = (split(vec![1.0, 8.0, 3.0, 8.0]), split(vec![0.0; 4]));
        let classes = vec!["a".to_owned(), "b".to_owned()];
        let description = Description::of(&Dataset { name: "csv", shape, classes, train, test });
        assert_eq!(description.train.mean, [2.0, 8.0]);
        assert_eq!(description.train.standard_deviation, [1.0, 0.0]);
        assert!(description.to_text().starts_with("csv: vectors of 2 numbers"));
    }

    #[test]
    fn counts_means_and_deviations_are_those_of_a_small_case() {
        let shape = Shape { channels: 2, height: 1, width: 2 };
        let train = Split::new(vec![0, 255, 51, 51, 0, 255, 51, 51], vec![1, 1], shape);
        let test = Split::new(vec![1, 2, 3, 4], vec![0], shape);
        let classes = vec!["a".to_owned(), "b".to_owned()];
        let data = Dataset { name: "textures", shape, classes, train, test };
        let description = Description::of(&data);
        assert_eq!(description.train.per_class, [0, 2]);
        assert_eq!(description.train.mean, [0.5, 0.2]);
        assert_eq!(description.train.standard_deviation, [0.5, 0.0]);
        let text = description.to_text();
        assert!(
            text.contains("mean 0.50000 0.20000  standard deviation 0.50000 0.00000"),
            "{text}"
        );
    }
}
