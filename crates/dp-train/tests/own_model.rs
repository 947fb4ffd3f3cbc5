//! The example of a user's own model and data set does what it says.

#[path = "../examples/own_model.rs"]
mod own_model;

#[test]
fn a_model_of_ones_own_learns_privately() {
    // The noise differs from run to run; guessing is right for half of the images.
    let accuracy = own_model::train().unwrap();
    assert!(accuracy > 0.75, "{accuracy}");
}
