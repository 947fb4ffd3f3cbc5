//! A generator whose every number follows from (seed, index): an input is found again without the ones
//! before it.

/// The generator of Steele, Lea & Flood (2014), `SplitMix64`: good enough to choose bytes.
pub(crate) struct Random(u64);

impl Random {
    /// The stream of one input of one target.
    pub(crate) fn new(target: &str, seed: u64, index: u64) -> Self {
        let mut random = Self(seed);
        for word in target.bytes().map(u64::from).chain([index]) {
            random.0 = random.next() ^ word;
        }
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Whether a thing of this many in a hundred happens.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of some.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A range inside `0..len`, mostly short.
    pub(crate) fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        let most = if self.percent(80) { 16 } else { len };
        let length = self.below(most.min(len - start) + 1);
        start..start + length
    }
}
