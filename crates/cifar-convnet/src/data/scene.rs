//! One image of the embedded data set: what is drawn, how it lies, and what is in the way.
//!
//! Everything is `f32` addition, multiplication, division and comparison in a fixed order, which IEEE
//! 754 rounds the same way on every machine; no function of the mathematics library is called.

/// Width and height of an image.
pub(super) const SIDE: usize = 32;

/// What an image can show. The first five fill the image, the others are figures in it.
pub(super) const CLASSES: [&str; 10] =
    ["stripes", "checks", "dots", "rings", "zigzag", "disc", "square", "triangle", "cross", "star"];

/// `SplitMix64`: one 64-bit state, statistically sound, not secret.
pub(super) struct Random(u64);

impl Random {
    /// An independent stream for every pair of keys.
    pub(super) fn new(key: u64, index: u64) -> Self {
        let mut outer = Self(key);
        let mut inner = Self(outer.next() ^ index);
        Self(inner.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `[low, high)`, from 24 bits.
    fn between(&mut self, low: f32, high: f32) -> f32 {
        let unit = (self.next() >> 40) as f32 / 16_777_216.0;
        low + (high - low) * unit
    }
}

/// Where the drawing lies: `local = R(angle) (pixel - centre) / scale`.
struct Pose {
    centre: [f32; 2],
    rotation: [f32; 2],
    scale: f32,
}

impl Pose {
    fn draw(class: usize, random: &mut Random) -> Self {
        // A figure must mostly be inside, and large enough to tell; a texture may start anywhere.
        let (reach, small, large) = if class < 5 { (1.0, 0.8, 1.5) } else { (0.3, 0.5, 0.85) };
        let angle = random.between(0.0, 1.0);
        Self {
            centre: [random.between(-reach, reach), random.between(-reach, reach)],
            rotation: [wave(angle + 0.25), wave(angle)],
            scale: random.between(small, large),
        }
    }

    fn local(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        let (x, y) = ((x - self.centre[0]) / self.scale, (y - self.centre[1]) / self.scale);
        let [cos, sin] = self.rotation;
        [x * cos + y * sin, y * cos - x * sin]
    }
}

/// Draws one image of a class into `pixels`, three planes of red, green and blue. About 50 µs.
pub(super) fn draw(class: usize, random: &mut Random, pixels: &mut [u8]) {
    let pose = Pose::draw(class, random);
    let detail = random.between(0.0, 1.0);
    let [ink, paper] = colours(class, random);
    let clouds = Clouds::draw(random);
    let light = [random.between(-0.15, 0.15), random.between(-0.15, 0.15)];
    let noise = random.between(0.01, 0.06);
    let mut patches: [Patch; 2] = std::array::from_fn(|_| Patch::draw(random));
    let cloudiness = random.between(0.0, 0.3);
    if random.between(0.0, 1.0) < HIDDEN {
        patches[0].cover_most(random);
    }

    for row in 0..SIDE {
        for column in 0..SIDE {
            let at = [column, row].map(|pixel| (2 * pixel + 1) as f32 / SIDE as f32 - 1.0);
            let cover = cover(class, pose.local(at), detail, pose.scale);
            let shade =
                (clouds.at(column, row) - 0.5) * cloudiness + light[0] * at[0] + light[1] * at[1];
            let grain = random.next();
            for channel in 0..3 {
                let mut value = paper[channel] + (ink[channel] - paper[channel]) * cover + shade;
                for patch in &patches {
                    if patch.hides(at) {
                        value = patch.colour[channel];
                    }
                }
                // The sum of two bytes is close enough to a normal distribution; its deviation is 104.5.
                let bytes = (grain >> (16 * channel)) as u16;
                let sum = i32::from(bytes >> 8) + i32::from(bytes & 255) - 255;
                value += sum as f32 * noise / 104.5;
                pixels[(channel * SIDE + row) * SIDE + column] = (value * 255.0 + 0.5) as u8;
            }
        }
    }
}

/// The ink and the paper: a hue that says a little about the class, and at least some contrast.
fn colours(class: usize, random: &mut Random) -> [[f32; 3]; 2] {
    let hue = class as f32 / 10.0 + random.between(-0.22, 0.22);
    let bright = random.between(0.6, 1.0);
    let contrast = random.between(0.25, 0.6);
    let ink = colour(hue, random.between(0.2, 0.8), bright);
    let paper = colour(random.between(0.0, 1.0), random.between(0.0, 0.6), bright - contrast);
    // Some are dark on light.
    if random.between(0.0, 1.0) < 0.85 {
        [ink, paper]
    } else {
        [ink.map(|v| v - contrast), paper.map(|v| v + contrast)]
    }
}

/// Hue in turns, saturation and value to red, green and blue.
fn colour(hue: f32, saturation: f32, value: f32) -> [f32; 3] {
    [0.0, 2.0 / 3.0, 1.0 / 3.0].map(|shift| {
        let ramp = (fraction(hue + shift) * 6.0 - 3.0).abs() - 1.0;
        value * (1.0 - saturation * (1.0 - ramp.clamp(0.0, 1.0)))
    })
}

/// How much of the pixel is ink, from 0 to 1; the edges are about a pixel wide.
fn cover(class: usize, [x, y]: [f32; 2], detail: f32, scale: f32) -> f32 {
    let radius = (x * x + y * y).sqrt();
    let turns = 1.6 + 1.4 * detail;
    let distance = match class {
        0 => wave(x * turns) * 0.16,
        1 => wave(x * turns * 0.8) * wave(y * turns * 0.8) * 0.2,
        2 => {
            let [x, y] = [x, y].map(|v| fraction(v * turns) - 0.5);
            ((x * x + y * y).sqrt() - 0.3) / turns
        }
        3 => wave(radius * turns) * 0.16,
        4 => wave(x * turns + 2.0 * (fraction(y * turns * 0.6) - 0.5).abs()) * 0.13,
        5 => radius - 0.8,
        6 => x.abs().max(y.abs()) - 0.72,
        7 => (-y).max(x.abs() * 0.866_025_4 + y * 0.5) - 0.5,
        8 => {
            let (long, short) = (x.abs().max(y.abs()), x.abs().min(y.abs()));
            (long - 0.95).max(short - 0.22 - 0.12 * detail)
        }
        _ => star(x, y),
    };
    (0.5 - distance * scale * SIDE as f32 / 2.0).clamp(0.0, 1.0)
}

/// Five points: folded into one half point by three mirrors, then the side of one edge.
fn star(x: f32, y: f32) -> f32 {
    let mirror = |[x, y]: [f32; 2], [nx, ny]: [f32; 2]| {
        let over = 2.0 * (nx * x + ny * y).max(0.0);
        [x - over * nx, y - over * ny]
    };
    let folded = mirror([x.abs(), y], [0.809_017, -0.587_785_25]);
    let folded = mirror(folded, [-0.809_017, -0.587_785_25]);
    let [x, y] = [folded[0].abs(), folded[1] - 0.95];
    // The edge from the tip (0, 0.95) to the notch at 0.4 of the radius, 36 degrees further.
    let (ex, ey) = (0.38 * 0.587_785_25, 0.38 * 0.809_017 - 0.95);
    (x * -ey + y * ex) / (ex * ex + ey * ey).sqrt()
}

/// Smooth noise on a grid of 5 x 5 values: uneven paper.
struct Clouds([[f32; 5]; 5]);

impl Clouds {
    fn draw(random: &mut Random) -> Self {
        Self(std::array::from_fn(|_| std::array::from_fn(|_| random.between(0.0, 1.0))))
    }

    fn at(&self, column: usize, row: usize) -> f32 {
        let [(i, u), (j, v)] = [row, column].map(|pixel| {
            let t = (pixel % 8) as f32 / 8.0;
            (pixel / 8, t * t * (3.0 - 2.0 * t))
        });
        let grid = &self.0;
        let upper = grid[i][j] + (grid[i][j + 1] - grid[i][j]) * v;
        let lower = grid[i + 1][j] + (grid[i + 1][j + 1] - grid[i + 1][j]) * v;
        upper + (lower - upper) * u
    }
}

/// One image in so many is mostly hidden: a share of mistakes that no training takes away.
const HIDDEN: f32 = 1.0 / 8.0;

/// A rectangle in front of the image.
struct Patch {
    centre: [f32; 2],
    half: [f32; 2],
    colour: [f32; 3],
}

impl Patch {
    fn draw(random: &mut Random) -> Self {
        let centre = [random.between(-1.0, 1.0), random.between(-1.0, 1.0)];
        let half = [random.between(0.0, 0.28), random.between(0.0, 0.28)];
        let hue = random.between(0.0, 1.0);
        Self {
            centre,
            half,
            colour: colour(hue, random.between(0.0, 0.6), random.between(0.2, 1.0)),
        }
    }

    /// Leaves a frame of at most a fifth of the image's side to see.
    fn cover_most(&mut self, random: &mut Random) {
        self.centre = [random.between(-0.1, 0.1), random.between(-0.1, 0.1)];
        self.half = [random.between(0.7, 0.9), random.between(0.7, 0.9)];
    }

    fn hides(&self, [x, y]: [f32; 2]) -> bool {
        (x - self.centre[0]).abs() < self.half[0] && (y - self.centre[1]).abs() < self.half[1]
    }
}

/// `t - floor(t)`.
fn fraction(t: f32) -> f32 {
    let whole = t as i32 as f32;
    if t < whole { t - whole + 1.0 } else { t - whole }
}

/// `sin(2π t)` to 0.001: two parabolas, sharpened once.
fn wave(t: f32) -> f32 {
    let t = fraction(t + 0.5) - 0.5;
    let parabola = 8.0 * t - 16.0 * t * t.abs();
    0.225 * (parabola * parabola.abs() - parabola) + parabola
}
