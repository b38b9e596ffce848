//! The engine's only source of randomness. The seed is an input, so that a run can be repeated. The generator is
//! SplitMix64; nothing here needs a better one.

use std::time::Duration;

#[derive(Clone, Debug, serde::Serialize)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns `d` plus 0 to 50 % (W9).
    pub fn jitter(&mut self, d: Duration) -> Duration {
        d + self.spread(d).mul_f64(0.5)
    }

    /// Returns a random duration from 0 to `d`.
    pub fn spread(&mut self, d: Duration) -> Duration {
        d.mul_f64((self.draw() >> 11) as f64 / (1u64 << 53) as f64)
    }
}
