//! Minimisation of a smooth function of a few hundred variables: L-BFGS with a line search.

use std::collections::VecDeque;

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    /// Most iterations.
    pub(super) iterations: usize,
    /// Ends when ten iterations together lower the value by less than this.
    pub(super) decrease: f64,
}

/// Secant pairs that are kept.
const HISTORY: usize = 20;
/// Evaluations that a line search may take.
const TRIALS: usize = 40;

/// A point with its value and gradient.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    pub(super) x: Vec<f64>,
    pub(super) value: f64,
    pub(super) gradient: Vec<f64>,
}

/// A local minimum near `start`, by L-BFGS (Nocedal & Wright 2006, Algorithm 7.4) and a bisection for
/// the weak Wolfe conditions. The value never rises. A function that is not defined somewhere says so by an
/// infinite value there.
pub(super) fn minimize(
    start: Vec<f64>,
    limits: Limits,
    mut function: impl FnMut(&[f64]) -> (f64, Vec<f64>),
) -> Point {
    let (value, gradient) = function(&start);
    let mut point = Point { x: start, value, gradient };
    let mut pairs: VecDeque<(Vec<f64>, Vec<f64>, f64)> = VecDeque::new();
    let mut values = VecDeque::from([value]);
    for _ in 0..limits.iterations {
        let mut direction = descent_direction(&point.gradient, &pairs);
        if dot(&direction, &point.gradient) >= 0.0 {
            pairs.clear();
            direction = descent_direction(&point.gradient, &pairs);
        }
        let size = dot(&point.gradient, &point.gradient).sqrt();
        if size == 0.0 || !point.value.is_finite() {
            break;
        }
        let first = if pairs.is_empty() { f64::min(1.0, 0.1 / size) } else { 1.0 };
        let Some(next) = search(&point, &direction, first, &mut function) else {
            if pairs.is_empty() {
                break;
            }
            // The model of the curvature misled; try the gradient alone before giving up.
            pairs.clear();
            continue;
        };
        let step = difference(&next.x, &point.x);
        let change = difference(&next.gradient, &point.gradient);
        let curvature = dot(&step, &change);
        if curvature > 1e-14 * (dot(&step, &step) * dot(&change, &change)).sqrt() {
            if pairs.len() == HISTORY {
                pairs.pop_front();
            }
            pairs.push_back((step, change, curvature));
        }
        point = next;
        values.push_back(point.value);
        if values.len() > 10 {
            let before = values.pop_front().unwrap_or(f64::INFINITY);
            if before - point.value < limits.decrease {
                break;
            }
        }
    }
    point
}

/// `-H gradient` by the two-loop recursion.
fn descent_direction(gradient: &[f64], pairs: &VecDeque<(Vec<f64>, Vec<f64>, f64)>) -> Vec<f64> {
    let mut q: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut along = Vec::with_capacity(pairs.len());
    for (step, change, curvature) in pairs.iter().rev() {
        let a = dot(step, &q) / curvature;
        add(&mut q, -a, change);
        along.push(a);
    }
    if let Some((_, change, curvature)) = pairs.back() {
        let scale = curvature / dot(change, change);
        q.iter_mut().for_each(|q| *q *= scale);
    }
    for ((step, change, curvature), a) in pairs.iter().zip(along.iter().rev()) {
        let b = dot(change, &q) / curvature;
        add(&mut q, a - b, step);
    }
    q
}

/// A point along the direction with enough decrease and less slope; or the best with enough decrease;
/// or none.
fn search(
    from: &Point,
    direction: &[f64],
    first: f64,
    function: &mut impl FnMut(&[f64]) -> (f64, Vec<f64>),
) -> Option<Point> {
    let slope = dot(direction, &from.gradient);
    let (mut low, mut high, mut t) = (0.0, f64::INFINITY, first);
    let mut best: Option<Point> = None;
    for _ in 0..TRIALS {
        let mut x = from.x.clone();
        add(&mut x, t, direction);
        let (value, gradient) = function(&x);
        let falls = value.is_finite() && value <= from.value + 1e-4 * t * slope;
        if !falls {
            high = t;
        } else {
            let steep = dot(&gradient, direction) < 0.9 * slope;
            if best.as_ref().is_none_or(|best| value <= best.value) {
                best = Some(Point { x, value, gradient });
            }
            if !steep {
                return best;
            }
            low = t;
        }
        t = if high.is_finite() { 0.5 * (low + high) } else { 2.0 * t };
        if high.is_finite() && high - low <= 1e-12 * high {
            break;
        }
    }
    best.filter(|best| best.value < from.value)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], scale: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += scale * x);
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_banana_valley_is_followed_to_its_end() {
        let banana = |x: &[f64]| {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            (a * a + 100.0 * b * b, vec![-2.0 * a - 400.0 * x[0] * b, 200.0 * b])
        };
        let limits = Limits { iterations: 500, decrease: 1e-20 };
        let found = minimize(vec![-1.2, 1.0], limits, banana);
        assert!(found.x.iter().all(|x| (x - 1.0).abs() < 1e-6), "{found:?}");
    }

    #[test]
    fn a_wall_is_not_crossed() {
        // x - ln x has its minimum at 1 and is not defined from 0 down.
        let log = |x: &[f64]| match x[0] > 0.0 {
            true => (x[0] - x[0].ln(), vec![1.0 - 1.0 / x[0]]),
            false => (f64::INFINITY, vec![0.0]),
        };
        let found = minimize(vec![30.0], Limits { iterations: 100, decrease: 1e-16 }, log);
        assert!((found.x[0] - 1.0).abs() < 1e-5, "{found:?}");
    }
}
