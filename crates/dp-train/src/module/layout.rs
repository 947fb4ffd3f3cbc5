//! The parameters of a module as one vector.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::{Flag, Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{
    Bool, DType, GradientCheckpointingStrategy, Gradients, Int, Tensor, TensorData,
};
use sha2::{Digest, Sha256};

use super::error::ModuleError;
use super::tape;
use crate::fingerprint::Fingerprint;

/// Where each trained parameter of a module lies in the flat vector of the run: in the order in which a visitor comes to
/// them, which the type of the module decides.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    entries: Vec<Entry>,
    by_id: HashMap<ParamId, usize>,
    dim: usize,
    strategy: Option<GradientCheckpointingStrategy>,
    /// Whether a flag is on that layers behave otherwise in training by.
    draws: bool,
}

/// One trained parameter.
#[derive(Debug, Clone)]
struct Entry {
    path: String,
    id: ParamId,
    shape: Vec<usize>,
    range: Range<usize>,
}

impl Layout {
    /// The trained parameters of a module: those that require gradients.
    ///
    /// # Errors
    /// [`ModuleError`] if there are none, one is not f32 or stands twice, or the module has a batch normalization that
    /// trains.
    pub(super) fn of<M: Module>(module: &M) -> Result<Self, ModuleError> {
        let mut survey = Survey::default();
        module.visit(&mut survey);
        if let Some(error) = survey.error {
            return Err(error);
        }
        if survey.dim == 0 {
            return Err(ModuleError::NothingToTrain);
        }
        let Survey { entries, dim, strategy, draws, .. } = survey;
        let by_id = entries.iter().enumerate().map(|(i, entry)| (entry.id, i)).collect();
        Ok(Self { entries, by_id, dim, strategy, draws })
    }

    /// How burn keeps what a backward pass of the module needs: tensors that are told otherwise cannot meet.
    pub(super) fn strategy(&self) -> Option<GradientCheckpointingStrategy> {
        self.strategy
    }

    /// Whether layers may draw at random: those that burn's training flags switch on. Of others the check finds that losses differ from
    /// pass to pass.
    pub(super) fn draws(&self) -> bool {
        self.draws
    }

    /// Numbers in the vector.
    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    /// The name of a parameter in the module.
    pub(super) fn path(&self, id: ParamId) -> String {
        match self.by_id.get(&id) {
            Some(&i) => self.entries[i].path.clone(),
            None => "a parameter of something else".to_owned(),
        }
    }

    /// SHA-256 of the names and shapes in their order: what a run is bound to.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let lines = self.entries.iter().map(|entry| format!("{} {:?}\n", entry.path, entry.shape));
        Fingerprint::of_bytes(lines.collect::<String>().as_bytes())
    }

    /// SHA-256 of everything in the module that is not trained: frozen parameters, running statistics, numbers that are
    /// not floating-point.
    pub(super) fn frozen<M: Module>(module: &M) -> Fingerprint {
        // A running state shows what it was last told only after this.
        let _ = module.valid();
        let mut frozen = Frozen { hash: Sha256::new() };
        module.visit(&mut frozen);
        Fingerprint::from_bytes(frozen.hash.finalize().into())
    }

    /// That hash as a certificate has it: none where nothing is left as it is.
    pub(super) fn told(frozen: Fingerprint) -> Option<Fingerprint> {
        Some(frozen).filter(|&hash| hash != Fingerprint::of_bytes(&[]))
    }

    /// The values of the trained parameters.
    pub(super) fn values<M: Module>(&self, module: &M) -> Vec<f32> {
        let mut values = Values { values: Vec::with_capacity(self.dim) };
        module.visit(&mut values);
        values.values
    }

    /// The module with other values of the trained parameters, still to be trained.
    pub(super) fn with_values<M: Module>(&self, module: M, values: &[f32]) -> M {
        module.map(&mut Writer { layout: self, values })
    }

    /// The gradients of the trained parameters in one vector, zero where there is none.
    pub(super) fn gradients<M: Module>(&self, module: &M, gradients: &Gradients) -> Vec<f32> {
        let mut values = vec![0.0; self.dim];
        for (id, data) in self.by_parameter(module, gradients) {
            let range = self.range(id).expect("others are left out");
            values[range].copy_from_slice(data.as_slice().expect("it is f32"));
        }
        values
    }

    /// The same by parameter, those that there are.
    pub(super) fn by_parameter<M: Module>(
        &self,
        module: &M,
        gradients: &Gradients,
    ) -> Vec<(ParamId, TensorData)> {
        let mut found = ByParameter { gradients, found: Vec::new() };
        module.visit(&mut found);
        found.found.retain(|(id, _)| self.by_id.contains_key(id));
        found.found
    }

    /// The first trained parameter that a pass computed a gradient for.
    pub(super) fn with_gradient<M: Module>(
        &self,
        module: &M,
        gradients: &Gradients,
    ) -> Option<String> {
        let mut first = First { gradients, id: None };
        module.visit(&mut first);
        first.id.map(|id| self.path(id))
    }

    /// The numbers of one parameter in the vector.
    pub(super) fn range(&self, id: ParamId) -> Option<Range<usize>> {
        self.by_id.get(&id).map(|&i| self.entries[i].range.clone())
    }
}

/// Whether a parameter is trained.
fn is_trained<const D: usize>(parameter: &Param<Tensor<D>>) -> bool {
    parameter.base().is_require_grad()
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.inner().into_data().try_to_vec().expect("it is f32")
}

#[derive(Default)]
struct Survey {
    path: Vec<String>,
    containers: Vec<String>,
    entries: Vec<Entry>,
    dim: usize,
    strategy: Option<GradientCheckpointingStrategy>,
    draws: bool,
    error: Option<ModuleError>,
}

impl ModuleVisitor for Survey {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push(name.to_owned());
        self.containers.push(container.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
        self.containers.pop();
    }

    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let value = parameter.base();
        if !value.is_require_grad() {
            return;
        }
        let path = self.path.join(".");
        self.strategy = self.strategy.or(value.gradient_checkpointing_strategy());
        if value.dtype() != DType::F32 {
            let dtype = format!("{:?}", value.dtype());
            self.error.get_or_insert(ModuleError::NotF32 { path, dtype });
            return;
        }
        if let Some(first) = self.entries.iter().find(|entry| entry.id == parameter.id) {
            let first = first.path.clone();
            self.error.get_or_insert(ModuleError::Shared { first, second: path });
            return;
        }
        let shape = value.dims().to_vec();
        let length: usize = shape.iter().product();
        let range = self.dim..self.dim + length;
        self.dim += length;
        self.entries.push(Entry { path, id: parameter.id, shape, range });
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.draws |= flag.is_enabled();
        let in_batch_norm = |container: &String| container.ends_with(":BatchNorm");
        if flag.is_enabled() && self.containers.last().is_some_and(in_batch_norm) {
            let path = self.path[..self.path.len().saturating_sub(1)].join(".");
            self.error.get_or_insert(ModuleError::BatchNorm { path });
        }
    }
}

struct Frozen {
    hash: Sha256,
}

impl Frozen {
    fn add(&mut self, data: &TensorData) {
        self.hash.update(format!("{:?} {:?}", data.shape(), data.dtype()));
        self.hash.update(data.as_bytes());
    }
}

impl ModuleVisitor for Frozen {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if !is_trained(parameter) {
            self.add(&parameter.base().inner().into_data());
        }
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<D, Int>>) {
        self.add(&parameter.base().inner().into_data());
    }

    fn visit_bool<const D: usize>(&mut self, parameter: &Param<Tensor<D, Bool>>) {
        self.add(&parameter.base().inner().into_data());
    }
}

struct Values {
    values: Vec<f32>,
}

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if is_trained(parameter) {
            self.values.extend(floats(parameter.base()));
        }
    }
}

struct Writer<'a> {
    layout: &'a Layout,
    values: &'a [f32],
}

impl ModuleMapper for Writer<'_> {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let range = is_trained(&parameter).then(|| self.layout.range(parameter.id)).flatten();
        let Some(range) = range else {
            return parameter;
        };
        parameter.map(|old| {
            let data = TensorData::new(self.values[range].to_vec(), old.dims());
            let strategy = old.gradient_checkpointing_strategy();
            tape::tracked(Tensor::from_data(data, &old.inner().device()), strategy).require_grad()
        })
    }
}

struct ByParameter<'a> {
    gradients: &'a Gradients,
    found: Vec<(ParamId, TensorData)>,
}

impl ModuleVisitor for ByParameter<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if let Some(gradient) = parameter.base().grad(self.gradients) {
            self.found.push((parameter.id, gradient.into_data()));
        }
    }
}

struct First<'a> {
    gradients: &'a Gradients,
    id: Option<ParamId>,
}

impl ModuleVisitor for First<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if self.id.is_none() && parameter.base().grad(self.gradients).is_some() {
            self.id = Some(parameter.id);
        }
    }
}
