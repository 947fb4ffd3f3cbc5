//! Damaged inputs of the readers. The targets stand beside what they read, `fuzz.rs` in each folder; here are
//! the engine and the model files.

use dp_train::model::{Architecture, Layer, Shape};

use crate::run::parameters;

#[path = "../../mf-core/tests/fuzzing/mod.rs"]
mod engine;

pub(crate) use engine::{Kind, Target};

fn model() -> Architecture {
    let layers = vec![
        Layer::Flatten,
        Layer::Linear { in_features: 4, out_features: 3 },
        Layer::Tanh,
        Layer::Linear { in_features: 3, out_features: 2 },
    ];
    Architecture::new(Shape::Image { channels: 1, height: 2, width: 2 }, layers).unwrap()
}

#[test]
fn a_damaged_model_file_is_refused_or_a_model() {
    let model = model();
    let numbers: Vec<f32> = (0..model.parameter_count()).map(|i| i as f32 / 8.0 - 1.0).collect();
    let target = Target {
        name: "safetensors",
        kind: Kind::Binary,
        corpus: vec![parameters::write(&model, &numbers).unwrap()],
        inputs: 20_000,
        cost: 1,
        most_bytes: 1 << 20,
    };
    target.run(|input| {
        let Ok(read) = parameters::read(&model, input.bytes) else { return Ok(false) };
        let written = parameters::write(&model, &read).map_err(|error| error.to_string())?;
        let again = parameters::read(&model, &written).map_err(|error| error.to_string())?;
        let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let same = bits(&read) == bits(&again) && read.len() == model.parameter_count();
        if same { Ok(true) } else { Err("it was read as something else than a model".into()) }
    });
}
