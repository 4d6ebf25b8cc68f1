//! A small generator of the sample's own (splitmix64), so that no crate's version changes the trips.

/// The seed of the whole sample.
const SEED: u64 = 0x0052_6566_7261_696e;

/// A stream of numbers that looks random and is always the same.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// The stream with this name; streams of different names have nothing to do with each other.
    pub(super) fn stream(name: [u64; 2]) -> Self {
        let first = Random(SEED ^ name[0]).next();
        Self(Random(first ^ name[1]).next())
    }

    /// The next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below `end`, which is small.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        let high = self.next() >> 32;
        ((high * u64::from(end)) >> 32) as u32
    }

    /// True in so many of 1000 cases.
    pub(super) fn permille(&mut self, cases: u32) -> bool {
        self.below(1000) < cases
    }

    /// One of them, each as likely as its weight says.
    pub(super) fn pick<T: Copy>(&mut self, weighted: &[(T, u32)], otherwise: T) -> T {
        let mut left = self.below(weighted.iter().map(|(_, weight)| weight).sum());
        for &(value, weight) in weighted {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return value,
            }
        }
        otherwise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423_u64];
        assert_eq!([random.next(), random.next(), random.next()], expected);
    }

    #[test]
    fn picks_follow_their_weights() {
        let mut random = Random::stream([1, 2]);
        let picked = (0..10_000).filter(|_| random.pick(&[('a', 9), ('b', 1)], 'b') == 'a').count();
        assert!((8_800..9_200).contains(&picked), "{picked} of 10000, expected about 9000");
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}
