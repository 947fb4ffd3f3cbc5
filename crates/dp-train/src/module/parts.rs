//! Uses of layers that share parameters: norms of single examples, and what is left for their sum.

use std::ops::Range;

use burn::tensor::Tensor;

use super::layer_use::{OfParameters, Seen};
use crate::engine::{Scales, sum_of_squares};

/// Uses that share parameters.
pub(super) enum Part {
    One(Box<Seen>),
    Several(Vec<Seen>),
}

/// What a part leaves for the clipped sum.
pub(super) enum Left {
    Rows(OfParameters<2>),
    Seen(Box<Seen>),
}

/// Squared norms of examples, added up over parameters.
#[derive(Default)]
pub(super) struct Norms {
    pub(super) squared: Option<Tensor<1>>,
    pub(super) terms: usize,
}

impl Norms {
    /// Those of all examples, by layers that know them without rows.
    pub(super) fn of(parts: &[Part]) -> Self {
        let mut norms = Self::default();
        for part in parts {
            if let Part::One(seen) = part
                && let Some(more) = seen.squared_norms()
            {
                norms.add(more);
            }
        }
        norms
    }

    pub(super) fn of_block(&self, block: Range<usize>) -> Self {
        let squared = self.squared.as_ref().map(|squared| squared.clone().slice([block]));
        Self { squared, terms: self.terms }
    }

    pub(super) fn add(&mut self, norms: Tensor<1>) {
        self.terms += 1;
        self.squared = Some(match self.squared.take() {
            Some(sum) => sum + norms,
            None => norms,
        });
    }
}

impl Part {
    /// Whether it is one layer whose sum is made of outer products in host memory.
    pub(super) fn is_outer_product_on_host(&self) -> bool {
        matches!(self, Self::One(seen) if seen.is_outer_product() && seen.is_on_host())
    }

    /// Whether an example's part of a sum is made of products that may be larger than itself.
    pub(super) fn cancels(&self) -> bool {
        match self {
            Self::One(seen) => seen.cancels(),
            Self::Several(_) => false,
        }
    }

    /// Squared norms of examples, to be added up, and what is left for their sum.
    pub(super) fn norms(&self, block: Range<usize>) -> (Vec<Tensor<1>>, Left) {
        let rows = match self {
            Self::One(seen) => {
                let seen = seen.of(block);
                if let Some(norms) = seen.squared_norms() {
                    return (vec![norms], Left::Seen(Box::new(seen)));
                }
                seen.rows()
            }
            // The norm of a sum is not to be had from the norms of its terms.
            Self::Several(uses) => {
                // In the order of their first uses: norms are added up in it, and runs repeat bit by bit.
                let mut rows: OfParameters<2> = Vec::new();
                for (id, more) in uses.iter().flat_map(|seen| seen.of(block.clone()).rows()) {
                    match rows.iter_mut().find(|(known, _)| *known == id) {
                        Some((_, sum)) => *sum = sum.clone() + more,
                        None => rows.push((id, more)),
                    }
                }
                rows
            }
        };
        (rows.iter().map(|(_, rows)| sum_of_squares(rows.clone())).collect(), Left::Rows(rows))
    }
}

impl Left {
    pub(super) fn sum(self, scales: &Scales) -> OfParameters<1> {
        match self {
            Self::Rows(rows) => rows.into_iter().map(|(id, rows)| (id, scales.sum(rows))).collect(),
            Self::Seen(seen) => seen.sum(scales),
        }
    }

    /// The gradients that are held.
    pub(super) fn held(self) -> OfParameters<2> {
        match self {
            Self::Rows(rows) => rows,
            Self::Seen(_) => Vec::new(),
        }
    }
}

/// Uses by the parameters that they share. Uses of one layer become one with the positions of all.
pub(super) fn parts(uses: Vec<Seen>) -> Vec<Part> {
    let mut groups: Vec<Vec<Seen>> = Vec::new();
    for seen in uses {
        let ids = seen.parameters();
        let shares = |group: &Vec<Seen>| {
            group.iter().any(|other| other.parameters().iter().any(|id| ids.contains(id)))
        };
        let (mut same, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(shares);
        groups = others;
        let mut group: Vec<Seen> = same.drain(..).flatten().collect();
        group.push(seen);
        groups.push(group);
    }
    groups
        .into_iter()
        .map(|mut uses| {
            if uses.len() == 1 {
                return Part::One(Box::new(uses.remove(0)));
            }
            match Seen::joined(&uses) {
                Some(one) => Part::One(Box::new(one)),
                None => Part::Several(uses),
            }
        })
        .collect()
}
