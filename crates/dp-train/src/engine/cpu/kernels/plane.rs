//! How one example's image lies in memory: pixel by pixel, channels last, zeros around it.

use crate::engine::cpu::kernels::tile::COLUMNS;

/// Rows and columns of an image, a window or a grid of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) height: usize,
    pub(crate) width: usize,
}

impl Size {
    /// As many rows as columns.
    pub(crate) fn square(side: usize) -> Self {
        Self { height: side, width: side }
    }

    /// Rows times columns.
    pub(crate) fn area(self) -> usize {
        self.height * self.width
    }
}

/// The layout of an image: `rows x columns` pixels of `pitch` floats, of which `height x width`
/// pixels and `channels` floats are the image and all others stay zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plane {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Floats of one pixel.
    pub(crate) pitch: usize,
    /// Zero pixels above and to the left.
    pub(crate) border: usize,
    /// All pixels of a column.
    pub(crate) rows: usize,
    /// All pixels of a row.
    pub(crate) columns: usize,
}

impl Plane {
    /// `border` zeros on every side, channels filled up to whole vectors.
    pub(crate) fn new(channels: usize, Size { height, width }: Size, border: usize) -> Self {
        let pitch = channels.next_multiple_of(COLUMNS);
        let (rows, columns) = (height + 2 * border, width + 2 * border);
        Self { channels, height, width, pitch, border, rows, columns }
    }

    /// At least `rows x columns` pixels: more zeros below and to the right.
    pub(crate) fn at_least(self, rows: usize, columns: usize) -> Self {
        Self { rows: self.rows.max(rows), columns: self.columns.max(columns), ..self }
    }

    /// Rows and columns of the image.
    pub(crate) fn size(&self) -> Size {
        Size { height: self.height, width: self.width }
    }

    /// Floats of one example.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.columns * self.pitch
    }

    /// Where the pixel begins that is `(row, column)` of all pixels, the border counted.
    pub(crate) fn bordered(&self, row: usize, column: usize) -> usize {
        (row * self.columns + column) * self.pitch
    }

    /// Where pixel `(y, x)` of the image begins.
    pub(crate) fn pixel(&self, y: usize, x: usize) -> usize {
        self.bordered(y + self.border, x + self.border)
    }

    /// Where each pixel of the image begins, row by row.
    pub(crate) fn pixels(&self) -> Vec<u32> {
        let columns = |y| (0..self.width).map(move |x| self.pixel(y, x) as u32);
        (0..self.height).flat_map(columns).collect()
    }

    /// The floats of image row `y`, all channels of all its pixels.
    pub(crate) fn row(&self, y: usize) -> std::ops::Range<usize> {
        let at = self.pixel(y, 0);
        at..at + self.width * self.pitch
    }
}

/// The layouts around one layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planes {
    pub(crate) input: Plane,
    pub(crate) output: Plane,
    /// Of the loss's gradient with respect to the input; the first layer needs none.
    pub(crate) input_gradient: Option<Plane>,
    pub(crate) output_gradient: Plane,
}
