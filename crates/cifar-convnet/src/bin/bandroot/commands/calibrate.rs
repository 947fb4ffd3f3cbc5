//! `bandroot calibrate`: from (epsilon, delta) to the noise multiplier and back.

use dp_train::calibration;
use serde::Serialize;

use crate::cli::Calibrate;
use crate::terminal::output;
use cifar_convnet::BadArgument;
use cifar_convnet::files;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct CalibrateOutput {
    noise_multiplier: f64,
    epsilon: f64,
    delta: f64,
}

pub(crate) fn run(arguments: &Calibrate) -> anyhow::Result<()> {
    let delta = arguments.delta;
    let bad = |error: calibration::CalibrationError| BadArgument(error.to_string());
    let report = match (arguments.epsilon, arguments.noise_multiplier) {
        (Some(epsilon), None) => {
            let noise_multiplier = calibration::multiplier(epsilon, delta).map_err(bad)?;
            CalibrateOutput { noise_multiplier, epsilon, delta }
        }
        (None, Some(noise_multiplier)) => {
            let epsilon = calibration::epsilon(noise_multiplier, delta).map_err(bad)?;
            CalibrateOutput { noise_multiplier, epsilon, delta }
        }
        _ => return Err(BadArgument("give --epsilon or --noise-multiplier".into()).into()),
    };
    if arguments.json {
        return output::print(&files::json(&report)?);
    }
    output::print(&format!(
        "noise multiplier  {}\nepsilon           {}\ndelta             {:e}\n",
        report.noise_multiplier, report.epsilon, report.delta
    ))
}
