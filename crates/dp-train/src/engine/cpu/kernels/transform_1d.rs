//! The matrices of Winograd's F(4, 3), applied to one row or column of a tile.

use crate::engine::cpu::kernels::vector::Vector;

/// `B' d`.
#[inline(always)]
pub(crate) fn inputs_1d<V: Vector>(d: [V; 6]) -> [V; 6] {
    let (two, four, five) = (V::splat(2.0), V::splat(4.0), V::splat(-5.0));
    let even = d[2].mul_add(V::splat(-4.0), d[4]);
    let odd = d[1].mul_add(V::splat(-4.0), d[3]);
    let (near, far) = (d[4].sub(d[2]), d[3].sub(d[1]).mul(two));
    [
        d[0].mul_add(four, d[2].mul_add(five, d[4])),
        even.add(odd),
        even.sub(odd),
        near.add(far),
        near.sub(far),
        d[1].mul_add(four, d[3].mul_add(five, d[5])),
    ]
}

/// `A' m`.
#[inline(always)]
pub(crate) fn outputs_1d<V: Vector>(m: [V; 6]) -> [V; 4] {
    let (sum, difference) = (m[1].add(m[2]), m[1].sub(m[2]));
    let (sum2, difference2) = (m[3].add(m[4]), m[3].sub(m[4]));
    [
        m[0].add(sum).add(sum2),
        difference2.mul_add(V::splat(2.0), difference),
        sum2.mul_add(V::splat(4.0), sum),
        difference2.mul_add(V::splat(8.0), difference).add(m[5]),
    ]
}

/// `A y`.
#[inline(always)]
pub(crate) fn gradients_1d<V: Vector>(y: [V; 4]) -> [V; 6] {
    let (even, odd) = (y[0].add(y[2]), y[1].add(y[3]));
    let even2 = y[2].mul_add(V::splat(4.0), y[0]);
    let odd2 = y[3].mul_add(V::splat(8.0), y[1].mul(V::splat(2.0)));
    [y[0], even.add(odd), even.sub(odd), even2.add(odd2), even2.sub(odd2), y[3]]
}

/// `G w`.
#[inline(always)]
pub(crate) fn weights_1d<V: Vector>(w: [V; 3]) -> [V; 6] {
    let even = w[0].add(w[2]).mul(V::splat(-1.0 / 6.0));
    let odd = w[1].mul(V::splat(-1.0 / 6.0));
    let even2 = w[0].mul_add(V::splat(1.0 / 24.0), w[2].mul(V::splat(1.0 / 6.0)));
    let odd2 = w[1].mul(V::splat(1.0 / 12.0));
    [w[0].mul(V::splat(0.25)), even.add(odd), even.sub(odd), even2.add(odd2), even2.sub(odd2), w[2]]
}

/// `G' m`.
#[inline(always)]
pub(crate) fn weight_gradients_1d<V: Vector>(m: [V; 6]) -> [V; 3] {
    let sixth = V::splat(1.0 / 6.0);
    let (sum, difference) = (m[1].add(m[2]), m[1].sub(m[2]));
    let (sum2, difference2) = (m[3].add(m[4]), m[3].sub(m[4]));
    let near = sum.mul(V::splat(-1.0 / 6.0));
    [
        m[0].mul_add(V::splat(0.25), sum2.mul_add(V::splat(1.0 / 24.0), near)),
        difference2.mul_add(V::splat(1.0 / 12.0), difference.mul(V::splat(-1.0 / 6.0))),
        sum2.mul_add(sixth, near).add(m[5]),
    ]
}
