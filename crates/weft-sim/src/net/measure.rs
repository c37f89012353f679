//! What a run is judged by: percentiles, completion times, power, fairness.

/// Buckets for each doubling of a value, so that a percentile is right to 1.6 %.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.ilog2();
/// All doublings of 64 bits above the first `2 * STEPS` values, which have a bucket each.
const BUCKETS: usize = (64 - STEP_BITS as usize) * STEPS as usize + STEPS as usize;

/// How often values occurred, in buckets of 3 % width; the memory does not depend on how many there were.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Empty until there is a value.
    counts: Vec<u64>,
    n: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    /// One value more.
    #[inline]
    pub fn add(&mut self, value: u64) {
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        self.counts[bucket(value)] += 1;
        self.n += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// All values of another.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            for (count, more) in self.counts.iter_mut().zip(&other.counts) {
                *count += more;
            }
        }
        self.n += other.n;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// How many values there were.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The mean, exact; 0 of none.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum as f64 / self.n as f64 }
    }

    /// The largest value; 0 of none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// A value that a share of `p` of all values, 0 to 1, do not exceed; 0 of none.
    pub fn percentile(&self, p: f64) -> u64 {
        let rank = ((p * self.n as f64).ceil() as u64).clamp(1, self.n.max(1));
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return last_of(at).min(self.max);
            }
        }
        0
    }
}

/// The bucket of a value: the values below `STEPS` have one each, and every doubling above has `STEPS`.
fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let doubling = value.ilog2() - STEP_BITS;
    (u64::from(doubling + 1) * STEPS + (value >> doubling) - STEPS) as usize
}

/// The largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let doubling = bucket / STEPS - 1;
    let first = (bucket % STEPS + STEPS) << doubling;
    first + ((1u64 << doubling) - 1)
}

/// The value at `floor(n * p)` in order of size, which is how "Extending SDN to the Data Plane" takes its tails;
/// none of none. Sorts the values.
pub fn tail(values: &mut [u64], p: f64) -> Option<u64> {
    values.sort_unstable();
    let at = (values.len() as f64 * p) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied()
}

/// Jain's index of fairness: 1 if all have the same, `1 / n` if one has all. 1 of none.
///
/// Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// Power: throughput over delay, in bits a second for each second.
pub fn power(bits_per_s: f64, delay_s: f64) -> f64 {
    if delay_s > 0.0 { bits_per_s / delay_s } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentiles would be off by more than a bucket is wide.
    #[test]
    fn percentiles_within_three_percent() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.percentile(0.5), histogram.mean(), histogram.is_empty()), (0, 0.0, true));
        for value in 1..=100_000u64 {
            histogram.add(value * 1000);
        }
        for (p, exact) in [(0.5, 5e7), (0.9, 9e7), (0.999, 9.99e7), (1.0, 1e8), (0.0, 1e3)] {
            let got = histogram.percentile(p) as f64;
            assert!((exact..=exact * 1.032).contains(&got), "{p}: {got}");
        }
        assert_eq!(
            (histogram.max(), histogram.len(), histogram.mean()),
            (100_000_000, 100_000, 50_000_500.0)
        );
    }

    /// A value would be counted in a bucket that does not hold it.
    #[test]
    fn each_value_is_in_its_bucket() {
        for value in
            (0..2000).chain((6..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits])).chain([u64::MAX])
        {
            let at = bucket(value);
            assert!(value <= last_of(at) && (at == 0 || value > last_of(at - 1)), "{value} in {at}");
            assert!(at < BUCKETS);
        }
    }

    /// Results of seeds that ran apart would not add up.
    #[test]
    fn merge_equals_joint_count() {
        let (mut a, mut b, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 0..1000 {
            if value % 3 == 0 {
                a.add(value)
            } else {
                b.add(value * 7)
            }
            both.add(if value % 3 == 0 { value } else { value * 7 });
        }
        let mut merged = Histogram::default();
        merged.merge(&a);
        merged.merge(&b);
        assert_eq!((merged.percentile(0.5), merged.mean()), (both.percentile(0.5), both.mean()));
    }

    /// The verdicts of the experiment would rest on wrong figures.
    #[test]
    fn figures_match_definitions() {
        assert_eq!(jain(&[1.0, 1.0, 1.0]), 1.0);
        assert_eq!(jain(&[4.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 1.0);
        assert_eq!(power(1e6, 0.5), 2e6);
        let mut values: Vec<u64> = (0..1000).rev().collect();
        assert_eq!((tail(&mut values, 0.999), tail(&mut values, 1.0)), (Some(999), Some(999)));
        assert_eq!(tail(&mut [], 0.5), None);
    }
}
