//! What a checkpoint is bound to: the config, the training examples, the arithmetic and the program.

use anyhow::Context;
use dp_train::fingerprint::Fingerprint;
use dp_train::seal::Seal;

use super::environment::{COMMIT, VERSION};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::canonical::tests::config;

    #[test]
    fn a_run_is_bound_to_all_that_its_numbers_depend_on_and_to_nothing_else() {
        let plain = config("");
        let data = Fingerprint::of_bytes(b"data");
        let seal = |config: &Config| super::seal(config, &data, "cpu".to_owned()).unwrap();
        let mut free = plain.clone();
        free.data.folder = "elsewhere".into();
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
}
