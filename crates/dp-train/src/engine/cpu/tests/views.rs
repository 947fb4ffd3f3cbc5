//! Means over views against the definition.

use super::*;

/// Clipped sums of means over `views` images each, by the definition.
fn means(case: &Case, views: usize, clip: f64) -> (Vec<f64>, ClipCounts, f64) {
    let mut sum = vec![0.0; case.parameters.len()];
    let mut counts = ClipCounts::default();
    let mut scale_of_sum = 0.0;
    for group in case.examples.chunks(views) {
        let mut mean = vec![0.0; sum.len()];
        for example in group {
            let terms = mean.iter_mut().zip(&example.gradient);
            terms.for_each(|(m, g)| *m += g / views as f64);
        }
        let size = norm(&mean);
        counts.examples += 1;
        counts.clipped += usize::from(size > clip);
        scale_of_sum += size.min(clip);
        sum.iter_mut().zip(&mean).for_each(|(s, m)| *s += (clip / size).min(1.0) * m);
    }
    (sum, counts, scale_of_sum)
}

#[test]
fn the_mean_over_views_is_clipped_once() {
    // Smooth layers: where ReLU or max pooling are undecided, f32 and f64 may take different sides.
    let smooth = vec![
        conv(3, 16, 3, 1, 1),
        Layer::Tanh,
        conv(16, 32, 3, 1, 1),
        Layer::GroupNorm { groups: 4 },
        Layer::Tanh,
        Layer::AvgPool2d { kernel: 2, stride: 2 },
        conv(32, 64, 3, 1, 1),
    ];
    let images = 24;
    let mut case = Case::new(classifier((3, 9, 8), smooth), images);
    let pixels = case.architecture.shapes()[0].len();
    for views in [2, 3, 4, 6, 12] {
        let classes: Vec<u32> = (0..images / views).map(|i| (i % 3) as u32).collect();
        for (i, image) in case.images.chunks(pixels).enumerate() {
            let (parameters, label) = (wide(&case.parameters), classes[i / views] as usize);
            case.examples[i] =
                reference::example(&case.architecture, &parameters, &wide(image), label);
        }
        let norms: f64 = case.examples.iter().map(|e| norm(&e.gradient)).sum();
        let middle = norms / images as f64;
        for convolution in METHODS {
            for (threads, microbatch, portable) in [(1, 0, false), (2, 5, false), (1, 3, true)] {
                let options =
                    EngineOptions { threads, microbatch, convolution, portable, adapter: None };
                let mut engine = case.engine(options);
                let batch = Batch::new(&case.images, &classes);
                for clip in [0.7 * middle, 0.01 * middle, 100.0 * middle] {
                    let (expected, counts, scale) = means(&case, views, clip);
                    let (sum, metrics) = engine
                        .clipped_sum(&case.parameters, batch.with_views(views), clip)
                        .unwrap();
                    assert_eq!((sum.counts(), metrics.images), (counts, images));
                    let error = distance(&sum.into_values(), &expected) / scale;
                    assert!(error < 5e-5, "{views} views, {options:?}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn the_means_of_the_convnet_are_those_of_its_own_gradients() {
    let architecture = convnet();
    let parameters = initial_parameters(&architecture, RunSeed(5));
    let (images, labels) = batch(&architecture, 20);
    let mut engine = Engine::new(&architecture, EngineOptions::default()).unwrap();
    for views in [2, 5, 10] {
        let classes = &labels[..20 / views];
        let mut mean_of = |example: usize| -> Vec<f64> {
            let mut mean = vec![0.0; parameters.len()];
            for view in 0..views {
                let image = &images[(example * views + view) * 3072..][..3072];
                let one = Batch::new(image, &classes[example..=example]);
                let (gradient, _) = engine.gradient_sum(&parameters, one).unwrap();
                let terms = mean.iter_mut().zip(wide(&gradient));
                terms.for_each(|(m, g)| *m += g / views as f64);
            }
            mean
        };
        let means: Vec<_> = (0..classes.len()).map(&mut mean_of).collect();
        let clip = 0.9 * means.iter().map(|mean| norm(mean)).fold(0.0, f64::max);
        let mut expected = vec![0.0; parameters.len()];
        for mean in &means {
            let scale = (clip / norm(mean)).min(1.0);
            expected.iter_mut().zip(mean).for_each(|(e, m)| *e += scale * m);
        }
        let batch = Batch::new(&images, classes);
        let (sum, _) = engine.clipped_sum(&parameters, batch.with_views(views), clip).unwrap();
        assert!(sum.counts().clipped >= 1);
        let error = distance(&sum.into_values(), &expected) / norm(&expected);
        assert!(error < 2e-5, "{views} views: {error:e}");
    }
}

#[test]
fn views_do_not_widen_what_an_example_can_do() {
    let architecture = convnet();
    let parameters = initial_parameters(&architecture, RunSeed(5));
    let (images, labels) = batch(&architecture, 10);
    let mut engine = Engine::new(&architecture, EngineOptions::default()).unwrap();
    let one = Batch::new(&images, &labels[..1]);
    for clip in [1e-4, 0.1, 1.0] {
        let (sum, _) = engine.clipped_sum(&parameters, one.with_views(10), clip).unwrap();
        assert!(norm(&wide(&sum.into_values())) <= clip * (1.0 + 1e-7));
    }
    // Equal views are one image.
    let same = [&images[..3072]; 5].concat();
    let same = Batch::new(&same, &labels[..1]);
    let single = Batch::new(&images[..3072], &labels[..1]);
    let (five, _) = engine.clipped_sum(&parameters, same.with_views(5), 1e6).unwrap();
    let (once, _) = engine.clipped_sum(&parameters, single, 1e6).unwrap();
    let once = wide(&once.into_values());
    assert!(distance(&five.into_values(), &once) < 1e-5 * norm(&once));
    // One bad view spoils its example and no other.
    let mut spoiled = images.clone();
    spoiled[3072] = f32::NAN;
    let pairs = |images| Batch::new(images, &labels[..5]);
    let (sum, _) = engine.clipped_sum(&parameters, pairs(&spoiled).with_views(2), 0.5).unwrap();
    assert_eq!((sum.counts().examples, sum.counts().non_finite), (5, 1));
    let kept = Batch::new(&images[2 * 3072..], &labels[1..5]);
    let (without, _) = engine.clipped_sum(&parameters, kept.with_views(2), 0.5).unwrap();
    assert!(distance(&sum.into_values(), &wide(&without.into_values())) < 1e-5);
    let none = engine.clipped_sum(&parameters, single.with_views(0), 1.0);
    assert_eq!(none.unwrap_err(), EngineError::NoViews);
    let uneven = engine.clipped_sum(&parameters, single.with_views(2), 1.0);
    assert_eq!(uneven.unwrap_err(), EngineError::Images { expected: 6144, found: 3072 });
}

#[test]
fn plain_sums_count_every_view() {
    let architecture = classifier((3, 9, 8), vec![conv(3, 16, 3, 1, 1), Layer::Relu]);
    let parameters = initial_parameters(&architecture, RunSeed(5));
    let (images, labels) = batch(&architecture, 60);
    let mut engine = Engine::new(&architecture, EngineOptions::default()).unwrap();
    let repeated: Vec<u32> = labels[..20].iter().flat_map(|&label| [label; 3]).collect();
    let views = Batch::new(&images, &labels[..20]).with_views(3);
    let found = engine.gradient_sum(&parameters, views).unwrap();
    assert_eq!(found.1.images, 60);
    assert_eq!(found, engine.gradient_sum(&parameters, Batch::new(&images, &repeated)).unwrap());
    let none = engine.gradient_sum(&parameters, views.with_views(0));
    assert_eq!(none.unwrap_err(), EngineError::NoViews);
}
