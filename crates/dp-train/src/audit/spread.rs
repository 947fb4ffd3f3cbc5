//! Canaries spread over tiles: for the noise as production makes it, tile by tile on all threads.
//!
//! A canary has its gradient along the difference of two coordinates. Each coordinate alone may
//! have the right noise; if the two share some of it, it cancels in the difference and gives the
//! canary away.

use super::canary::{CANARIES, World};
use super::part::{Part, ReleasedRows, Target};
use super::report::AuditError;
use crate::gradient::PerSampleGradients;
use crate::noise::normal::TILE;
use crate::plan::DpPlan;
use crate::seeds::NoiseKey;

/// Coordinates: two whole tiles, and a last one of six panels of 16 and half a panel.
pub const COORDINATES: usize = 2 * TILE + LAST;

/// Coordinates of the last tile.
const LAST: usize = 104;

/// Coordinates in a panel of the noise's history.
const PANEL: usize = 16;

/// The two coordinates of every canary; no coordinate belongs to two.
///
/// * 24 at one offset of two tiles, of each pair of tiles, at the edges of panels and at the very
///   last coordinate: tiles that share noise.
/// * 22 neighbours at the edges of tiles and panels: panels that share noise, or swap it.
/// * 18 within the last tile: its own edge cases.
pub fn pairs() -> [[usize; 2]; CANARIES] {
    let mut pairs = Vec::with_capacity(CANARIES);
    for (shift, tiles) in [(0, [0, 1]), (1, [1, 2]), (2, [0, 2])] {
        for offset in [1, 13, 16, 29, 48, 61, 80, LAST - 3] {
            pairs.push(tiles.map(|tile: usize| tile * TILE + offset + shift));
        }
    }
    let edges = [TILE, 2 * TILE].into_iter();
    let edges = edges.chain((0..20).map(|i| i % 2 * TILE + LAST + 8 + i * 2 * PANEL));
    let neighbours = edges.map(|edge| [edge - 1, edge]);
    let free: Vec<usize> = (2 * TILE + 1..COORDINATES)
        .filter(|coordinate| !pairs.iter().flatten().any(|used| used == coordinate))
        .collect();
    let within: Vec<_> = free.chunks_exact(4).take(18).map(|four| [four[0], four[3]]).collect();
    pairs.extend(neighbours);
    pairs.extend(within);
    std::array::from_fn(|j| pairs[j])
}

/// Over-long gradients, so that clipping is part of what is tested.
fn gradients(
    canaries: std::ops::Range<usize>,
    contribution: f64,
) -> Result<PerSampleGradients, AuditError> {
    let mut gradients = PerSampleGradients::new(COORDINATES);
    for [plus, minus] in &pairs()[canaries] {
        let mut gradient = vec![0.0; COORDINATES];
        gradient[*plus] = 10.0 * contribution as f32;
        gradient[*minus] = -10.0 * contribution as f32;
        gradients.push(&gradient)?;
    }
    Ok(gradients)
}

/// Canaries spread over tiles, for a run in one go or for one that is resumed.
///
/// # Errors
/// None that a plan has a reason for.
pub fn spread(target: Target, plan: &DpPlan) -> Result<Part, AuditError> {
    let clip_norm = plan.request().clip_norm;
    let canary = super::canary::Canary::worst(plan);
    Part::new(target, plan, COORDINATES, |j, world| {
        let sum = gradients(j..j + 1, canary.contribution(world))?.clip(clip_norm)?;
        Ok(sum.into_values())
    })
}

/// Runs the mechanism of the plan once.
///
/// # Errors
/// [`AuditError`] if the mechanism refuses a step, which it has no reason to.
pub fn released(part: &Part, world: World, key: NoiseKey) -> Result<ReleasedRows, AuditError> {
    let contribution = part.canary.contribution(world);
    let all = gradients(0..CANARIES, contribution)?;
    part.released(key, |step| {
        let there = part.canary.takes_part[step] && contribution != 0.0;
        let gradients = if there { all.clone() } else { PerSampleGradients::new(COORDINATES) };
        Ok(gradients.clip(part.plan.request().clip_norm)?)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_coordinate_belongs_to_two_canaries_and_all_edges_are_met() {
        let pairs = pairs();
        let used: HashSet<usize> = pairs.iter().flatten().copied().collect();
        assert_eq!(used.len(), 2 * CANARIES);
        assert!(used.iter().all(|&coordinate| coordinate < COORDINATES));
        for edge in [TILE, 2 * TILE] {
            assert!(pairs.contains(&[edge - 1, edge]));
        }
        assert!(used.contains(&(COORDINATES - 1)));
        let across =
            |a: usize, b: usize| pairs.iter().filter(|p| p.map(|c| c / TILE) == [a, b]).count();
        assert_eq!([across(0, 1), across(1, 2), across(0, 2), across(2, 2)], [9, 9, 8, 18]);
        let panel_edges = pairs.iter().filter(|[a, b]| a + 1 == *b && b % PANEL == 0).count();
        assert_eq!(panel_edges, 22);
    }
}
