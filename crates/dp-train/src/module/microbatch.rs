//! How many examples a forward pass takes, unless the caller says it.
//!
//! Every pass adds its gradients to those before it, which for a layer of many weights and small outputs costs as much as the
//! products do; so small examples go many at a time. Outputs of large ones would leave the caches. The choice depends on shapes alone: it
//! decides how sums are rounded, and must be the same in every run.

use super::layer_use::LayerUse;

/// Examples of a pass at least.
const LEAST: usize = 128;
/// And at most.
const MOST: usize = 1024;
/// Numbers that tapped layers of a pass may put out, if that is not fewer than [`LEAST`] examples.
const OUTPUTS: usize = 1 << 20;

/// Examples of a pass through layers that were recorded; [`LEAST`] where none were.
pub(super) fn usual(uses: &[LayerUse]) -> usize {
    let outputs: usize = uses.iter().map(LayerUse::outputs).sum();
    let fitting = OUTPUTS.checked_div(outputs).unwrap_or(LEAST);
    fitting.clamp(LEAST, MOST) / LEAST * LEAST
}
