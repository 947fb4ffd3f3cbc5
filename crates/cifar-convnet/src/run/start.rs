//! The start of a run: random parameters, or those of another run under a head that is made anew.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, ensure};
use dp_train::fingerprint::Fingerprint;
use dp_train::model::{Architecture, Layer, Shape};
use dp_train::provenance::Origin;

use super::folder::{PARAMETERS, PROVENANCE};
use super::provenance;
use super::source::{Source, refusal};
use crate::config::Config;
use crate::config::privacy::Privacy;

/// What a run starts from besides its seed.
#[derive(Debug, Default)]
pub(super) struct Start {
    /// The parameters of another run, for the layers in front of the head and behind it.
    taken: Option<Taken>,
    /// The runs that they came from, nearest first.
    pub(super) provenance: Vec<Origin>,
}

#[derive(Debug)]
struct Taken {
    architecture: Architecture,
    parameters: Vec<f32>,
}

impl Start {
    /// Reads the run that `model.start_from` names, if it names one, and checks that a run with this model may start
    /// from it.
    ///
    /// # Errors
    /// A [`BadArgument`](crate::BadArgument) if that is no finished run of the same layers, or if it was trained on
    /// the same data and this run is to be private.
    pub(super) fn read(
        config: &Config,
        architecture: &Architecture,
        data: &Fingerprint,
    ) -> anyhow::Result<Self> {
        let Some(run) = &config.model.start_from else { return Ok(Self::default()) };
        let source = Source::read(run)?;
        if let Some(difference) = difference(architecture, &source.trained.architecture) {
            return Err(refusal(run, difference).into());
        }
        // Without a guarantee there is none that the data of both could break.
        if config.privacy != Privacy::None {
            source.check_data(config, data)?;
        }
        let taken = Taken {
            architecture: source.trained.architecture,
            parameters: source.trained.parameters,
        };
        Ok(Self { taken: Some(taken), provenance: source.provenance })
    }

    /// What a run that is taken up again started from, by its own folder: the parameters are in the checkpoint, and the
    /// run that they came from need not be there any more. If it is, its hash is the one it has now.
    ///
    /// # Errors
    /// If the run's provenance is gone or damaged.
    pub(super) fn resumed(run: &Path, config: &Config) -> anyhow::Result<Self> {
        let Some(source) = &config.model.start_from else { return Ok(Self::default()) };
        let list = provenance::read(run)?.filter(|list| !list.is_empty());
        let mut provenance = list.with_context(|| {
            format!(
                "{} is gone, without which it is not known what the run started from",
                run.join(PROVENANCE).display()
            )
        })?;
        let path = source.join(PARAMETERS);
        match fs::read(&path) {
            Ok(bytes) => provenance[0].parameters_sha256 = Fingerprint::of_bytes(&bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("could not read {}", path.display()));
            }
        }
        Ok(Self { taken: None, provenance })
    }

    /// Puts the parameters of the other run in place of the random ones, but for the head. O(parameters).
    ///
    /// # Errors
    /// If these are not the parameters of a model that it was read for.
    pub(super) fn apply(
        &self,
        architecture: &Architecture,
        parameters: &mut [f32],
    ) -> anyhow::Result<()> {
        let Some(taken) = &self.taken else { return Ok(()) };
        let head = architecture.head().context("the model has no head")?;
        for layer in (0..architecture.layers().len()).filter(|&layer| layer != head) {
            let there = taken.architecture.parameters_of(layer);
            for (here, there) in architecture.parameters_of(layer).iter().zip(there) {
                ensure!(here.shape == there.shape, "tensor {} has another shape", here.name);
                let values = &taken.parameters[there.range.clone()];
                parameters[here.range.clone()].copy_from_slice(values);
            }
        }
        Ok(())
    }
}

/// Why the parameters of one model are not to be those of another: the first layer that differs, counted from 0. The
/// heads may differ in their number of outputs.
fn difference(here: &Architecture, there: &Architecture) -> Option<String> {
    let Some(head) = here.head() else {
        return Some("the model has no linear layer that could be made anew".to_owned());
    };
    let word =
        |layer: Option<&Layer>| layer.map_or("none".to_owned(), |layer| format!("{layer:?}"));
    let layers = here.layers().len().max(there.layers().len());
    for index in 0..layers {
        let (mine, other) = (here.layers().get(index), there.layers().get(index));
        if index <= head
            && let (Some(&mine), Some(&other)) =
                (here.shapes().get(index), there.shapes().get(index))
            && mine != other
        {
            let (mine, other) = (size(mine), size(other));
            return Some(format!(
                "layer {index} takes {mine} in this model and {other} in that one"
            ));
        }
        let both_heads = index == head
            && matches!((mine, other), (Some(Layer::Linear { .. }), Some(Layer::Linear { .. })));
        if mine != other && !both_heads {
            let (mine, other) = (word(mine), word(other));
            return Some(format!("layer {index} is {mine} in this model and {other} in that one"));
        }
    }
    None
}

fn size(shape: Shape) -> String {
    match shape {
        Shape::Image { channels, height, width } => format!("{channels} x {height} x {width}"),
        Shape::Vector { features } => format!("{features} numbers"),
    }
}

#[cfg(test)]
mod tests {
    use dp_train::model::initial_parameters;
    use dp_train::seeds::RunSeed;

    use super::*;
    use crate::convnet;

    const COLOUR: Shape = Shape::Image { channels: 3, height: 16, width: 16 };

    #[test]
    fn all_but_the_head_is_taken_whatever_the_number_of_classes() {
        for nets in [convnet::convnet_for, convnet::convnet_tanh_for] {
            let (source, model) = (nets(COLOUR, 7).unwrap(), nets(COLOUR, 3).unwrap());
            assert_eq!(difference(&model, &source), None);
            let random = initial_parameters(&model, RunSeed(1));
            let trained = initial_parameters(&source, RunSeed(2));
            let taken = Taken { architecture: source.clone(), parameters: trained.clone() };
            let start = Start { taken: Some(taken), provenance: Vec::new() };
            let mut parameters = random.clone();
            start.apply(&model, &mut parameters).unwrap();
            let last = model.head().unwrap();
            for layer in 0..model.layers().len() {
                let there = source.parameters_of(layer);
                for (here, there) in model.parameters_of(layer).iter().zip(there) {
                    let found = &parameters[here.range.clone()];
                    let (new, old) = (&random[here.range.clone()], &trained[there.range.clone()]);
                    assert_eq!(found, if layer == last { new } else { old }, "{}", here.name);
                }
            }
            let mut plain = random.clone();
            Start::default().apply(&model, &mut plain).unwrap();
            assert_eq!(plain, random);
        }
    }

    #[test]
    fn the_first_layer_that_differs_is_named() {
        let differs = |here: &Architecture, there: &Architecture| difference(here, there).unwrap();
        let convnet = convnet::convnet_for(COLOUR, 10).unwrap();
        let tanh = convnet::convnet_tanh_for(COLOUR, 10).unwrap();
        assert_eq!(differs(&convnet, &tanh), "layer 1 is Relu in this model and Tanh in that one");
        let grey = Shape::Image { channels: 1, height: 16, width: 16 };
        let grey = convnet::convnet_for(grey, 10).unwrap();
        assert_eq!(
            differs(&convnet, &grey),
            "layer 0 takes 3 x 16 x 16 in this model and 1 x 16 x 16 in that one"
        );
        let input = Shape::Vector { features: 4 };
        let net = |layers: &[Layer]| Architecture::new(input, layers.to_vec()).unwrap();
        let (wide, narrow) = (Layer::linear(4, 8), Layer::linear(8, 2));
        let deep = net(&[wide, Layer::Relu, narrow]);
        // A head that is no head there, or the other way round, is another layer.
        let said = differs(&deep, &net(&[wide]));
        assert_eq!(said, "layer 1 is Relu in this model and none in that one");
        let said = differs(&net(&[wide]), &deep);
        assert_eq!(said, "layer 1 is none in this model and Relu in that one");
        let wider = net(&[Layer::linear(4, 9), Layer::Relu, Layer::linear(9, 2)]);
        assert!(differs(&deep, &wider).starts_with("layer 0 is Linear"));
        assert_eq!(difference(&deep, &net(&[wide, Layer::Relu, Layer::linear(8, 5)])), None);
        assert!(differs(&net(&[Layer::Relu]), &deep).contains("no linear layer"));
    }
}
