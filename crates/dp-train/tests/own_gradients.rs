//! The example of gradients from anywhere does what it says.

#[path = "../examples/own_gradients.rs"]
mod own_gradients;

#[test]
fn gradients_from_anywhere_train_privately_with_a_certificate() {
    // The noise differs from run to run; guessing is right for half of the examples.
    let accuracy = own_gradients::train().unwrap();
    assert!(accuracy > 0.8, "{accuracy}");
}
