//! Batches from the host, sums to the host: what training asks of every engine.

use cubecl::prelude::CubeElement;

use super::buffers::Buffer;
use super::engine::GpuEngine;
use super::ledger::Ledger;
use super::pass::PART;
use super::shown::send;
use crate::engine::batch::{Batch, BatchMetrics};
use crate::engine::error::EngineError;
use crate::engine::gradient_engine::{EngineDescription, GradientEngine};
use crate::engine::sizes::check_clip_norm;
use crate::gradient::{ClipCounts, ClippedSum};

/// What the device found out about a batch.
struct Found {
    /// Sums of parts of at most [`PART`] examples, one after the other.
    parts: Vec<f32>,
    /// Loss and correctness of every image.
    measures: Vec<f32>,
    /// Of every example: 1 if it was clipped, 2 if it is not finite. Empty without clipping.
    marks: Vec<u32>,
}

impl GpuEngine {
    /// The sums of a few images, clipped or not.
    fn sums(
        &mut self,
        parameters: &Buffer,
        batch: Batch<'_>,
        clip_norm: Option<f64>,
    ) -> Result<Found, String> {
        let examples = batch.labels.len();
        let images = examples * batch.views;
        self.place(images, batch.views)?;
        let ledger = Ledger::new(&self.client);
        let (input, labels) = send(self, &ledger, batch.images, batch.labels.to_vec());
        let parts = Buffer::new(&self.client, parameters.length * examples.div_ceil(PART).max(1));
        let pass = self.pass(parameters, &input, (&parts, 0), (&ledger, 1), images)?;
        pass.forward();
        pass.losses(&labels);
        let buffers = pass.buffers;
        let mut wanted = vec![parts.clone(), buffers.measures.clone(), ledger.words().clone()];
        match clip_norm {
            Some(clip_norm) => {
                pass.clipped(clip_norm);
                wanted.push(buffers.marks.clone());
            }
            None => pass.plain(),
        }
        let found = self.read(&wanted.iter().collect::<Vec<_>>())?;
        ledger.check(&found[2])?;
        let floats = |at: usize, length: usize| f32::from_bytes(&found[at])[..length].to_vec();
        let marks = found.get(3).map_or(Vec::new(), |b| u32::from_bytes(b)[..examples].to_vec());
        Ok(Found { parts: floats(0, parts.length), measures: floats(1, 2 * images), marks })
    }

    /// Shows `take` what was found out about parts of a batch that fit onto the device.
    fn each(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: Option<f64>,
        mut take: impl FnMut(Found),
    ) -> Result<(), EngineError> {
        let pixels = self.sizes.pixels;
        self.run(|engine| {
            let together = engine.examples_together(batch.labels.len(), batch.views)?;
            let parameters = engine.upload(parameters);
            for block in batch.chunks(together, pixels) {
                take(engine.sums(&parameters, block, clip_norm)?);
            }
            Ok(())
        })
    }
}

/// Adds sums of parts in f64.
fn add(sum: &mut [f64], parts: &[f32]) {
    for part in parts.chunks_exact(sum.len().max(1)) {
        sum.iter_mut().zip(part).for_each(|(sum, &value)| *sum += f64::from(value));
    }
}

fn add_measures(metrics: &mut BatchMetrics, measures: &[f32]) {
    for measure in measures.chunks_exact(2) {
        metrics.images += 1;
        metrics.loss_sum += f64::from(measure[0]);
        metrics.correct += usize::from(measure[1] > 0.0);
    }
}

impl GradientEngine for GpuEngine {
    fn describe(&self) -> EngineDescription {
        let Self { name, compiler, form, microbatch, .. } = self;
        let deviation = self.deviation.map_or(String::new(), |deviation| {
            format!(", within {deviation:.0e} of the CPU engine")
        });
        EngineDescription {
            name: format!("{name}, up to {microbatch} images at a time{deviation}"),
            arithmetic: format!("own kernels in {form:?}, {name}, {compiler}"),
        }
    }

    fn forward(
        &mut self,
        parameters: &[f32],
        images: &[f32],
        logits: &mut [f32],
    ) -> Result<(), EngineError> {
        if self.sizes.check_forward(parameters, images, logits)? == 0 {
            return Ok(());
        }
        let (pixels, classes) = (self.sizes.pixels, self.sizes.classes);
        self.run(|engine| {
            let parameters = engine.upload(parameters);
            let together = engine.examples_together(images.len() / pixels, 1)?;
            let blocks = images.chunks(together * pixels);
            for (images, logits) in blocks.zip(logits.chunks_mut(together * classes)) {
                let count = images.len() / pixels;
                engine.place(count, 1)?;
                let input = engine.upload(images);
                let ledger = Ledger::new(&engine.client);
                // A forward pass has no sums.
                let pass = engine.pass(&parameters, &input, (&input, 0), (&ledger, 0), count)?;
                pass.forward();
                let last = pass.buffers.values[pass.network.ops.len()].clone();
                let found = engine.read(&[&last, ledger.words()])?;
                ledger.check(&found[1])?;
                logits.copy_from_slice(&f32::from_bytes(&found[0])[..logits.len()]);
            }
            Ok(())
        })
    }

    fn clipped_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        check_clip_norm(clip_norm)?;
        self.sizes.check_batch(parameters.len(), batch)?;
        self.compare(batch.views)?;
        let mut sum = vec![0.0; parameters.len()];
        let mut metrics = BatchMetrics::default();
        let mut counts = ClipCounts { examples: batch.labels.len(), ..ClipCounts::default() };
        self.each(parameters, batch, Some(clip_norm), |found| {
            add(&mut sum, &found.parts);
            add_measures(&mut metrics, &found.measures);
            counts.clipped += found.marks.iter().filter(|&&mark| mark == 1).count();
            counts.non_finite += found.marks.iter().filter(|&&mark| mark == 2).count();
        })?;
        // The kernels promise it, whatever the examples are.
        if !sum.iter().all(|value| value.is_finite()) {
            let reason = "its sum of clipped gradients is not finite".to_owned();
            return Err(EngineError::Failed { device: self.device, reason });
        }
        Ok((ClippedSum::from_clipping(sum, clip_norm, counts), metrics))
    }

    fn gradient_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
    ) -> Result<(Vec<f32>, BatchMetrics), EngineError> {
        self.sizes.check_batch(parameters.len(), batch)?;
        // Without clipping, views are images like any others.
        let labels = batch.image_labels();
        let images = Batch::new(batch.images, &labels);
        let mut sum = vec![0.0; parameters.len()];
        let mut metrics = BatchMetrics::default();
        self.each(parameters, images, None, |found| {
            add(&mut sum, &found.parts);
            add_measures(&mut metrics, &found.measures);
        })?;
        Ok((sum.into_iter().map(|value| value as f32).collect(), metrics))
    }
}
