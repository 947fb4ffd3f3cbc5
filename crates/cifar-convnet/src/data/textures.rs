//! The embedded data set: ten classes of textures, 32 x 32 in colour, made from a seed.
//!
//! Five textures fill the image and five figures stand in it; place, size, rotation, colours, light,
//! uneven paper, grain and up to two patches in front vary, and one image in eight is mostly hidden. The
//! hue says a little about the class, the rest is form. The same bits come out on every machine.

use rayon::prelude::*;

use super::scene::{self, CLASSES, Random, SIDE};
use super::{Dataset, Shape, Split};

/// How many images, and from which seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Textures {
    /// Training examples.
    pub train: usize,
    /// Test examples.
    pub test: usize,
    /// All images follow from it.
    pub seed: u64,
}

impl Default for Textures {
    fn default() -> Self {
        Self { train: 10_000, test: 2_000, seed: 0 }
    }
}

/// The sums of the two default splits, on every machine.
pub(super) const DEFAULT_MD5: [&str; 2] =
    ["f3c044459cc50dc13829643ae77c7cac", "b24399496c0114acf7954068343217b1"];

/// In configs and on the command line.
pub(super) const NAME: &str = "textures";

pub(super) const SHAPE: Shape = Shape { channels: 3, height: SIDE, width: SIDE };

impl Textures {
    /// Draws all images, on all cores. Image `i` has class `i mod 10` and depends on the seed, on
    /// `i` and on which split it is in, so a larger data set starts with the smaller one.
    pub fn draw(self) -> Dataset {
        Dataset {
            name: NAME,
            shape: SHAPE,
            classes: scene::CLASSES.map(String::from).into(),
            train: split(self.train, self.seed, 0),
            test: split(self.test, self.seed, 1),
        }
    }
}

fn split(len: usize, seed: u64, part: u64) -> Split {
    let labels = (0..len).map(|index| (index % CLASSES.len()) as u16).collect();
    let mut images = vec![0; len * SHAPE.numbers()];
    images.par_chunks_exact_mut(SHAPE.numbers()).enumerate().for_each(|(index, image)| {
        let mut random = Random::new(seed, 2 * index as u64 + part);
        scene::draw(index % CLASSES.len(), &mut random, image);
    });
    Split::new(images, labels, SHAPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Textures = Textures { train: 200, test: 100, seed: 7 };

    #[test]
    fn the_bits_are_the_same_on_every_machine() {
        let data = SMALL.draw();
        let sums = ["c6515a755203ba156053cfb49a33c1f7", "a44f5d9afa9b3b5a5b16f07271feb7ee"];
        assert_eq!([data.train.md5(), data.test.md5()], sums);
        assert_ne!(data.train.image(0), data.test.image(0));
        let larger = Textures { train: 300, ..SMALL }.draw();
        assert!((0..200).all(|i| larger.train.image(i) == data.train.image(i)));
        assert_ne!(Textures { seed: 8, ..SMALL }.draw().train, data.train);
    }

    #[test]
    fn classes_are_balanced_and_no_two_images_are_equal() {
        let data = Textures { train: 1000, ..SMALL }.draw();
        for class in 0..10 {
            assert_eq!(data.train.labels().iter().filter(|&&label| label == class).count(), 100);
        }
        let mut all: Vec<&[u8]> = (0..1000).map(|i| data.train.image(i).unwrap()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1000);
    }

    /// Softmax regression on the pixels by gradient descent in batches of 100.
    fn linear_accuracy(data: &Dataset, epochs: usize) -> f64 {
        let len = data.shape.numbers();
        let mut weights = vec![[0f32; 10]; len + 1];
        let mut pixels = vec![0f32; len];
        let mut scores = |weights: &[[f32; 10]], split: &Split, index: usize| {
            split.decode(&[index as u32], &mut pixels);
            let mut scores = weights[len];
            for (pixel, row) in pixels.iter().zip(weights) {
                (0..10).for_each(|class| scores[class] += pixel * row[class]);
            }
            (scores, pixels.clone())
        };
        for batch in 0..epochs * data.train.len() / 100 {
            let mut gradient = vec![[0f32; 10]; len + 1];
            for i in 0..100 {
                let index = (batch * 100 + i) % data.train.len();
                let (scores, pixels) = scores(&weights, &data.train, index);
                let top = scores.iter().copied().fold(f32::MIN, f32::max);
                let mut slope = scores.map(|score| (score - top).exp());
                let sum: f32 = slope.iter().sum();
                slope.iter_mut().for_each(|p| *p /= sum);
                slope[usize::from(data.train.labels()[index])] -= 1.0;
                for (pixel, row) in pixels.iter().chain(&[1.0]).zip(&mut gradient) {
                    (0..10).for_each(|class| row[class] += pixel * slope[class]);
                }
            }
            for (row, gradient) in weights.iter_mut().zip(&gradient) {
                (0..10).for_each(|class| row[class] -= 1e-4 * gradient[class]);
            }
        }
        let right = |&index: &usize| {
            let (scores, _) = scores(&weights, &data.test, index);
            let best = (0..10).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            best == Some(usize::from(data.test.labels()[index]))
        };
        (0..data.test.len()).filter(right).count() as f64 / data.test.len() as f64
    }

    #[test]
    fn a_linear_model_learns_something_but_not_much() {
        let accuracy = linear_accuracy(&Textures::default().draw(), 5);
        println!("softmax regression: {accuracy:.3} of the test images");
        // 10 % is guessing, with a deviation of 0.7 % over 2,000 images.
        assert!((0.2..0.4).contains(&accuracy), "{accuracy}");
    }
}
