//! Privacy loss distributions on a grid, never below the truth.
//!
//! The privacy loss of a pair `(P, Q)` is `ln dP/dQ` under `P`; its law decides everything, since
//! `delta(epsilon) = E (1 - e^{epsilon - loss})_+`. Here it is a law on the grid `j h` and infinity.
//!
//! # Connecting the dots
//! A cell `[l_j, l_{j+1}]` of losses has masses `U` under `P` and `V` under `Q`. Put `U` on the cell's two ends such
//! that both masses are kept (the loss at an end is the logarithm of the ratio of what lies there):
//!
//! ```text
//! up = (U - V e^{l_j}) / (1 - e^{-h})    goes to l_{j+1}, the rest of U to l_j
//! ```
//!
//! Then `delta` of the discrete law agrees with the true one at the grid points. In between it is linear in
//! `e^epsilon`, where the true one is convex, so it is never below (Doroshenko et al. 2022, arXiv:2207.04380). A pair whose
//! `delta` is nowhere below stays so under adaptive composition. Everything below the grid goes to the lowest point; of
//! what lies above, `U - V e^{l_top}` goes to infinity and the rest to the top: the same rule with one end far away.
//!
//! # Rounding
//! The masses `U(l)` and `V(l)` above every grid point carry relative errors below a third of [`Pld::rounding`], call it
//! `r`; errors of single cells cancel in these sums. So the discrete `delta(l) = U(l) - e^l V(l)` errs by at most
//! `(r/3) (U + e^l V) = (r/3) (delta + 2 e^l V)`, and since `delta(l - x) - delta(l) >= (1 - e^{-x}) e^l V(l)`, the true one is at
//! most `e^r delta(l - 2r)` of the discrete law. That is the divergence of measures scaled by `e^r` and `e^{-r}`, which
//! compose like any others: after `T` releases `e^{Tr} delta(epsilon - 2Tr)`, where
//! [`composition`](super::composition) evaluates it.

use super::AccountingError;

/// The most points of a grid: 32 MB.
pub(super) const MOST_POINTS: usize = 1 << 22;

/// The law of a privacy loss on the grid `j h`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pld {
    pub(super) step: f64,
    pub(super) lowest: i64,
    pub(super) masses: Vec<f64>,
    pub(super) infinite: f64,
    pub(super) rounding: f64,
}

/// One cell of losses: its masses, and the error of `upper - lower e^loss` at its lower end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) upper: f64,
    /// `upper - lower e^loss`, up to `noise`.
    pub(super) rest: f64,
    pub(super) noise: f64,
}

impl Pld {
    /// The law that keeps both masses of every cell, from the cells of losses `j h`, `j = lowest, ...`; `below` is
    /// the mass below all of them, `infinite` what goes to infinity, `top` what else lies above.
    ///
    /// The share that goes up is raised by the rounding error of the difference it is taken from: where cells are so
    /// narrow that the difference is all noise, everything goes up, which costs at most `h`.
    pub(super) fn from_cells(
        step: f64,
        lowest: i64,
        cells: impl ExactSizeIterator<Item = Cell>,
        ends: Ends,
    ) -> Self {
        let mut masses = vec![0.0; cells.len() + 1];
        let reach = -(-step).exp_m1();
        for (j, cell) in cells.enumerate() {
            let up = ((cell.rest + cell.noise) / reach).clamp(0.0, cell.upper);
            masses[j] += cell.upper - up;
            masses[j + 1] += up;
        }
        masses[0] += ends.below;
        if let Some(top) = masses.last_mut() {
            *top += ends.top;
        }
        Self { step, lowest, masses, infinite: ends.infinite, rounding: 1e-13 }
    }

    /// `h`, the distance between grid points.
    pub fn step(&self) -> f64 {
        self.step
    }

    /// The number of grid points.
    pub fn points(&self) -> usize {
        self.masses.len()
    }

    /// The mass at infinity: what no epsilon covers.
    pub fn infinite(&self) -> f64 {
        self.infinite
    }

    /// The relative rounding error of the masses.
    pub fn rounding(&self) -> f64 {
        self.rounding
    }

    /// The loss at the `j`-th point.
    pub(super) fn loss(&self, j: usize) -> f64 {
        (self.lowest + j as i64) as f64 * self.step
    }

    /// `delta(epsilon)` of one release. O(points).
    ///
    /// # Errors
    /// [`AccountingError::Epsilon`] for an epsilon that is negative or not finite.
    pub fn delta(&self, epsilon: f64) -> Result<f64, AccountingError> {
        if !(epsilon >= 0.0 && epsilon.is_finite()) {
            return Err(AccountingError::Epsilon { epsilon });
        }
        let earlier = epsilon - 2.0 * self.rounding;
        let share = |j: usize| (-(earlier - self.loss(j)).exp_m1()).max(0.0);
        let sum: f64 = self.masses.iter().enumerate().map(|(j, m)| m * share(j)).sum();
        Ok(((sum + self.infinite) * (1.0 + 2.0 * self.rounding)).min(1.0))
    }
}

/// What lies outside the cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) below: f64,
    pub(super) top: f64,
    pub(super) infinite: f64,
}
