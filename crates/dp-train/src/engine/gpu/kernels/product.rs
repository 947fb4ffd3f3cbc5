//! What is asked of a product, in either form.

/// Which way a convolution goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// From the input to the output, bias and activation included.
    Forward,
    /// From the gradient of the output to that of the input, times the derivative of the input's activation.
    Turned,
}

/// What the images of a row are summed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The mean over the views of one example; the squares of a tile are added up, from this slot on.
    Held {
        /// The first slot of the layer.
        slot: usize,
        /// Slots of an example.
        slots: usize,
    },
    /// The sum of scaled means over views; an example with factor 0 is left out whatever it holds.
    Clipped,
    /// The sum over all images.
    Plain,
}

/// Where the gradients go: rows of `row` numbers, with the weights of the layer at `at` and its biases behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) row: usize,
    pub(crate) at: usize,
}
