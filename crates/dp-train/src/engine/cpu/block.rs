//! One block of examples through the network and back.

use crate::engine::batch::Batch;
use crate::engine::cpu::workspace::{Model, Tally, Workspace};

impl Workspace {
    /// Adds the gradients of a block to a packed sum: clipped to a norm, or as they are.
    pub(super) fn add_gradients(
        &mut self,
        model: Model<'_>,
        batch: Batch<'_>,
        clip_norm: Option<f64>,
        sum: &mut [f32],
    ) -> Tally {
        let Batch { images, labels, views } = batch;
        match clip_norm {
            None => self.add_plain(model, images, &batch.image_labels(), sum),
            Some(clip_norm) if views == 1 => {
                self.add_clipped(model, images, labels, clip_norm, sum)
            }
            Some(clip_norm) => self.add_clipped_means(model, batch, clip_norm, sum),
        }
    }

    /// Adds the gradients of a block as they are.
    fn add_plain(
        &mut self,
        model: Model<'_>,
        images: &[f32],
        labels: &[u32],
        sum: &mut [f32],
    ) -> Tally {
        self.forward(model, labels.len(), images);
        let tally = self.backward(model, labels);
        for stage in 0..model.network.stages.len() {
            self.weight_gradient(model, stage, 0..labels.len(), Some(sum));
        }
        tally
    }
}
