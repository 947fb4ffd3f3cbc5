//! Recurrent layers: the same linear layers at every step of a sequence.

use burn::nn::GateController;
use burn::nn::gru::Gru;
use burn::nn::lstm::Lstm;
use burn::tensor::Tensor;

use super::Tapped;

/// `[n, width]` of every step of `[n, steps, width]`.
fn steps(sequence: Tensor<3>) -> impl Iterator<Item = Tensor<2>> {
    sequence.iter_dim(1).map(|step| step.squeeze_dim(1))
}

fn gate(gate: &GateController, input: &Tensor<2>, hidden: &Tensor<2>) -> Tensor<2> {
    gate.input_transform.tapped(input.clone()) + gate.hidden_transform.tapped(hidden.clone())
}

impl Tapped<Tensor<3>> for Gru {
    type Output = Tensor<3>;

    /// From a state of zeros; `[n, steps, hidden]`.
    fn tapped(&self, input: Tensor<3>) -> Tensor<3> {
        let n = input.dims()[0];
        let mut hidden = Tensor::zeros([n, self.d_hidden], &input.device());
        let states = steps(input).map(|x| {
            let update = self.gate_activation.forward(gate(&self.update_gate, &x, &hidden));
            let reset = self.gate_activation.forward(gate(&self.reset_gate, &x, &hidden));
            let new = &self.new_gate;
            let candidate = if self.reset_after {
                let of_hidden = new.hidden_transform.tapped(hidden.clone());
                new.input_transform.tapped(x) + reset * of_hidden
            } else {
                gate(new, &x, &(hidden.clone() * reset))
            };
            let candidate = self.hidden_activation.forward(candidate);
            let kept = update.clone() * hidden.clone();
            hidden = candidate * update.neg().add_scalar(1.0) + kept;
            if let Some(clip) = self.clip {
                hidden = hidden.clone().clamp(-clip, clip);
            }
            hidden.clone()
        });
        Tensor::stack(states.collect(), 1)
    }
}

impl Tapped<Tensor<3>> for Lstm {
    type Output = Tensor<3>;

    /// From a state of zeros, the hidden states of all steps: the first of what burn's `forward` returns, with the layout of axes
    /// and the direction that the layer is set to.
    fn tapped(&self, input: Tensor<3>) -> Tensor<3> {
        let input = if self.batch_first { input } else { input.swap_dims(0, 1) };
        let n = input.dims()[0];
        let zeros = Tensor::zeros([n, self.d_hidden], &input.device());
        let (mut hidden, mut cell): (Tensor<2>, Tensor<2>) = (zeros.clone(), zeros);
        let mut sequence: Vec<_> = steps(input).collect();
        if self.reverse {
            sequence.reverse();
        }
        let mut states = Vec::new();
        for x in sequence {
            let opened = |controller: &GateController| {
                self.gate_activation.forward(gate(controller, &x, &hidden))
            };
            let entering = opened(&self.input_gate);
            let kept = match &self.forget_gate {
                Some(forget) if !self.input_forget => opened(forget),
                _ => entering.clone().neg().add_scalar(1.0),
            };
            let shown = opened(&self.output_gate);
            let candidate = self.cell_activation.forward(gate(&self.cell_gate, &x, &hidden));
            cell = kept * cell + entering * candidate;
            if let Some(clip) = self.clip {
                cell = cell.clamp(-clip, clip);
            }
            hidden = shown * self.hidden_activation.forward(cell.clone());
            states.push(hidden.clone());
        }
        if self.reverse {
            states.reverse();
        }
        let states = Tensor::stack(states, 1);
        if self.batch_first { states } else { states.swap_dims(0, 1) }
    }
}
