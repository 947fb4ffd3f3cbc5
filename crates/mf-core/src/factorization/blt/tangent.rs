//! Numbers that carry their derivatives: exact gradients of a function of a few variables.

use std::ops::{Add, Mul, Neg, Sub};

/// Most variables.
pub(super) const VARIABLES: usize = 12;

/// A value with its derivatives by the variables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tangent {
    pub(super) value: f64,
    pub(super) gradient: [f64; VARIABLES],
}

impl Tangent {
    pub(super) const ZERO: Self = Self::constant(0.0);
    pub(super) const ONE: Self = Self::constant(1.0);

    pub(super) const fn constant(value: f64) -> Self {
        Self { value, gradient: [0.0; VARIABLES] }
    }

    /// The variable of this number.
    pub(super) fn variable(value: f64, number: usize) -> Self {
        let mut tangent = Self::constant(value);
        tangent.gradient[number] = 1.0;
        tangent
    }

    /// A function of this number with the given value and derivative.
    fn chain(self, value: f64, slope: f64) -> Self {
        Self { value, gradient: self.gradient.map(|g| slope * g) }
    }

    pub(super) fn exp(self) -> Self {
        let value = self.value.exp();
        self.chain(value, value)
    }

    pub(super) fn exp_m1(self) -> Self {
        self.chain(self.value.exp_m1(), self.value.exp())
    }

    pub(super) fn ln(self) -> Self {
        self.chain(self.value.ln(), 1.0 / self.value)
    }

    pub(super) fn ln_1p(self) -> Self {
        self.chain(self.value.ln_1p(), 1.0 / (1.0 + self.value))
    }

    pub(super) fn reciprocal(self) -> Self {
        let value = 1.0 / self.value;
        self.chain(value, -value * value)
    }

    pub(super) fn scale(self, factor: f64) -> Self {
        self.chain(factor * self.value, factor)
    }
}

impl Add for Tangent {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.value += other.value;
        self.gradient.iter_mut().zip(&other.gradient).for_each(|(a, b)| *a += b);
        self
    }
}

impl Neg for Tangent {
    type Output = Self;

    fn neg(self) -> Self {
        self.scale(-1.0)
    }
}

impl Sub for Tangent {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Tangent {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let mut product = Self::constant(self.value * other.value);
        for i in 0..VARIABLES {
            product.gradient[i] = self.gradient[i] * other.value + self.value * other.gradient[i];
        }
        product
    }
}
