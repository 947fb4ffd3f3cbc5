//! What a checkpoint is bound to: the config, the training examples, the arithmetic and the program.

use anyhow::Context;
use dp_train::fingerprint::Fingerprint;
use dp_train::provenance::Origin;
use dp_train::seal::Seal;

use super::checkpoints::START;
use super::environment::{COMMIT, VERSION};
use super::provenance;
use crate::config::Config;

/// The seal of a run's checkpoints.
///
/// # Errors
/// If the config has no canonical form, or the program cannot be read to name it.
pub(super) fn seal(
    config: &Config,
    data: &Fingerprint,
    arithmetic: String,
) -> anyhow::Result<Seal> {
    let mut seal = Seal::default();
    for (key, value) in config.bound()? {
        seal.bind(key, value);
    }
    seal.bind("data.sha256", data.to_string());
    seal.bind("engine.arithmetic", arithmetic);
    seal.bind("program.version", VERSION);
    seal.bind("program.commit", COMMIT);
    if COMMIT.ends_with("-dirty") || COMMIT == "unknown" {
        // The commit does not say what was built; the program itself does.
        let program = std::env::current_exe().and_then(std::fs::read);
        let program = program.context("the program could not be read to name it in the seal")?;
        seal.bind("program.sha256", Fingerprint::of_bytes(&program).to_string());
    }
    Ok(seal)
}

/// Binds a run to the one that it started from: to its parameters, wherever they lie, and to what is told of the data
/// behind them.
///
/// # Errors
/// If the provenance has no JSON form.
pub(super) fn bind_start(seal: &mut Seal, provenance: &[Origin]) -> anyhow::Result<()> {
    if let Some(nearest) = provenance.first() {
        seal.bind(format!("{START}parameters"), nearest.parameters_sha256.to_string());
        seal.bind(format!("{START}provenance"), provenance::sha256(provenance)?.to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dp_train::provenance::Protection;

    use super::*;
    use crate::config::canonical::tests::config;

    #[test]
    fn a_run_is_bound_to_all_that_its_numbers_depend_on_and_to_nothing_else() {
        let plain = config("");
        let data = Fingerprint::of_bytes(b"data");
        let seal = |config: &Config| super::seal(config, &data, "cpu".to_owned()).unwrap();
        let mut free = plain.clone();
        free.data.folder = "elsewhere".into();
        free.model.start_from = Some("a/run".into());
        free.engine.threads = Some(3);
        free.training.checkpoint_steps = Some(7);
        if let crate::config::privacy::Privacy::Guaranteed(guarantee) = &mut free.privacy {
            guarantee.trials = 9;
        }
        assert_eq!(seal(&free), seal(&plain));
        assert_eq!(free.sha256().unwrap(), plain.sha256().unwrap());
        let mut other = plain.clone();
        other.optimizer.momentum = 0.5;
        let difference = seal(&plain).difference(&seal(&other)).unwrap().to_string();
        assert!(difference.starts_with("optimizer.momentum was 0.0 when"), "{difference}");
        let elsewhere = Fingerprint::of_bytes(b"other data");
        let found = super::seal(&plain, &elsewhere, "cpu".to_owned()).unwrap();
        assert_eq!(seal(&plain).difference(&found).unwrap().key, "data.sha256");
        let found = super::seal(&plain, &data, "gpu".to_owned()).unwrap();
        assert_eq!(seal(&plain).difference(&found).unwrap().key, "engine.arithmetic");
    }

    #[test]
    fn a_run_is_bound_to_the_parameters_that_it_started_from_and_to_what_is_told_of_them() {
        let data = Fingerprint::of_bytes(b"data");
        let seal = |origins: &[Origin]| {
            let mut seal = super::seal(&config(""), &data, "cpu".to_owned()).unwrap();
            bind_start(&mut seal, origins).unwrap();
            seal
        };
        let origin = |parameters: &[u8], protection| Origin {
            parameters_sha256: Fingerprint::of_bytes(parameters),
            data: "faces".to_owned(),
            training_data_sha256: None,
            protection,
        };
        let then = seal(&[origin(b"one", Protection::None)]);
        let key = |now: &[Origin]| then.difference(&seal(now)).map(|difference| difference.key);
        assert_eq!(key(&[origin(b"one", Protection::None)]), None);
        let other = key(&[origin(b"two", Protection::None)]).unwrap();
        assert!(other.starts_with(START), "{other}");
        let renamed = key(&[origin(b"one", Protection::Generated)]).unwrap();
        assert_eq!(renamed, "model.start_from.provenance");
        assert!(key(&[]).unwrap().starts_with(START));
    }
}
