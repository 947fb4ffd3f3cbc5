//! Gradients of convolutions' weights and biases: `sum_p g_p (a_p, 1)'` over positions `p`, with the window `a_p` and the
//! gradient `g_p` of the output there.
//!
//! Rows of the product are output channels, columns the numbers under a window and, last, a 1 for the bias; its terms are
//! the positions of some images: those of one example, whose gradient is then held, or those of a few examples, whose
//! clipped sum it is. The factors of the examples are applied while the gradients of the output are loaded, so no
//! gradient of one example ever exists there.

use cubecl::prelude::*;

use super::geometry::Geometry;
use super::lanes::{self, Form};
use super::ledger::enter;
use super::product::{Kind, Place};
use super::reduction::sum_of_units;
use super::tile::add_product;
use super::window::pixel_under;
use super::{DEEP, SIDE, UNITS};

/// One tile of the gradient of a row of images, `together` of them. It is row `first_part` and on.
#[cube(launch)]
#[expect(clippy::too_many_arguments, reason = "those of a kernel")]
pub(crate) fn weight_gradient(
    ledger: &mut [u32],
    x: &[f32],
    dy: &[f32],
    factors: &[f32],
    to: &mut [f32],
    squares: &mut [f32],
    images: u32,
    together: u32,
    first_part: u32,
    #[comptime] g: Geometry,
    #[comptime] kind: Kind,
    #[comptime] place: Place,
    #[comptime] views: usize,
    #[comptime] tall: usize,
    #[comptime] form: Form,
) {
    enter(ledger);
    if comptime!(form == Form::Lanes) {
        lanes::weight_gradient::weight_gradient(
            x, dy, factors, to, squares, images, together, first_part, g, kind, place, views,
        );
    } else {
        tile_of(
            x, dy, factors, to, squares, images, together, first_part, g, kind, place, views, tall,
        );
    }
}

/// In tiles: images `CUBE_POS_Z * together` and so many.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a kernel's parts share its arguments")]
fn tile_of(
    x: &[f32],
    dy: &[f32],
    factors: &[f32],
    to: &mut [f32],
    squares: &mut [f32],
    images: u32,
    together: u32,
    first_part: u32,
    #[comptime] g: Geometry,
    #[comptime] kind: Kind,
    #[comptime] place: Place,
    #[comptime] views: usize,
    #[comptime] tall: usize,
) {
    let area = comptime!(g.area());
    let window = comptime!(g.window());
    let tile_rows = comptime!(SIDE * tall);
    let row_tiles = comptime!(g.outer.div_ceil(SIDE * tall));
    // One more than the tile's width, so that units that load one position write to different banks.
    let left_row = comptime!(SIDE * tall + 1);
    let right_row = comptime!(UNITS + 1);
    let mut left = Shared::<[f32]>::new_slice(comptime!(DEEP * (SIDE * tall + 1)));
    let mut right = Shared::<[f32]>::new_slice(comptime!(DEEP * (UNITS + 1)));
    // The tap and the channel of every column.
    let mut taps_of = Shared::<[u32]>::new_slice(UNITS);
    let mut channels_of = Shared::<[u32]>::new_slice(UNITS);

    let unit = UNIT_POS as usize;
    let group = CUBE_POS_Y as usize / row_tiles;
    let first_row = (CUBE_POS_Y as usize % row_tiles) * tile_rows;
    let first_column = CUBE_POS_X as usize * UNITS;
    let first_image = CUBE_POS_Z * together;
    let count = select(first_image + together < images, together, images - first_image);
    let first_image = first_image as usize;
    let total = count as usize * area;
    taps_of[unit] = ((first_column + unit) % comptime!(g.taps())) as u32;
    channels_of[unit] = ((first_column + unit) / comptime!(g.taps())) as u32;

    let mut sums = Array::<f32>::new(comptime!(tall * SIDE));
    #[unroll]
    for i in 0..comptime!(tall * SIDE) {
        sums[i] = 0.0f32;
    }
    let across_tile = unit % SIDE;
    let down_tile = unit / SIDE;
    // The position that this unit loads, and the first row and column of those it loads there.
    let k = unit % DEEP;
    let lane = unit / DEEP;
    sync_cube();
    for strip in 0..total.div_ceil(DEEP) {
        let position = strip * DEEP + k;
        let mut inside = position < total;
        let image = first_image + position / area;
        let p = position % area;
        let mut factor = 1.0f32;
        if comptime!(kind == Kind::Clipped) {
            if inside {
                factor = factors[image / views];
            }
            inside = inside && factor != 0.0f32;
        }
        let oy = p / comptime!(g.columns);
        let ox = p % comptime!(g.columns);
        #[unroll]
        for e in 0..comptime!(SIDE * tall * DEEP / UNITS) {
            let m = lane + e * comptime!(UNITS / DEEP);
            let row = first_row + m;
            let mut value = 0.0f32;
            if inside && row < comptime!(g.outer) {
                let channel =
                    image * comptime!(g.groups * g.outer) + group * comptime!(g.outer) + row;
                value = factor * dy[channel * area + p];
            }
            left[k * left_row + m] = value;
        }
        #[unroll]
        for e in 0..DEEP {
            let n = lane + e * comptime!(UNITS / DEEP);
            let tap = taps_of[n] as usize;
            let channel = channels_of[n] as usize;
            let mut value = 0.0f32;
            if inside {
                if channel < comptime!(g.inner) {
                    let (there, pixel) = pixel_under(oy, ox, tap, g);
                    if there {
                        let plane = image * comptime!(g.groups * g.inner)
                            + group * comptime!(g.inner)
                            + channel;
                        value = x[plane * comptime!(g.plane()) + pixel];
                    }
                } else if first_column + n == window {
                    value = 1.0f32;
                }
            }
            right[k * right_row + n] = value;
        }
        sync_cube();
        add_product(&left, &right, &mut sums, DEEP, tall, left_row, right_row);
        sync_cube();
    }
    let mut square = 0.0f32;
    #[unroll]
    for i in 0..tall {
        let row = first_row + down_tile * tall + i;
        #[unroll]
        for j in 0..SIDE {
            let column = first_column + across_tile + SIDE * j;
            if row < comptime!(g.outer) && column <= window {
                let mut value = sums[i * SIDE + j];
                if comptime!(kind != Kind::Plain && views > 1) {
                    value *= comptime!(1.0 / views as f32);
                }
                let channel = group * comptime!(g.outer) + row;
                let index = select(
                    column < window,
                    channel * window + column,
                    comptime!(g.weights()) + channel,
                );
                to[(first_part + CUBE_POS_Z) as usize * comptime!(place.row)
                    + comptime!(place.at)
                    + index] = value;
                square += value * value;
            }
        }
    }
    if let Kind::Held { slot, slots } = comptime!(kind) {
        let sum = sum_of_units(square);
        if unit == 0 {
            let tile = CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
            squares[CUBE_POS_Z as usize * slots + slot + tile] = sum;
        }
    }
}
