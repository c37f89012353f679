//! Metrics of a run: percentiles, completion times, power, fairness.

/// Buckets per doubling of a value: a percentile is accurate to 1.6 %.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.ilog2();
/// The first `2 * STEPS` values have a bucket each; each of the other doublings of 64 bits has `STEPS`.
const BUCKETS: usize = (64 - STEP_BITS as usize) * STEPS as usize + STEPS as usize;

/// A histogram with buckets of 3 % width. Its memory does not depend on the number of values.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Empty until the first value.
    counts: Vec<u64>,
    n: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    /// Adds a value to its bucket.
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

    /// Adds all values of another histogram.
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

    /// The number of values.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The exact mean; 0 if there are no values.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum as f64 / self.n as f64 }
    }

    /// The largest value; 0 if there are no values.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value that a share `p` (0 to 1) of the values do not exceed; 0 if there are no values.
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

/// The bucket of a value: values below `STEPS` have one each, and every doubling above has `STEPS`.
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

/// The value at `floor(n * p)` in ascending order, the definition of a tail in "Extending SDN to the Data Plane".
/// `None` if there are no values. Sorts the values.
pub fn tail(values: &mut [u64], p: f64) -> Option<u64> {
    values.sort_unstable();
    let at = (values.len() as f64 * p) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied()
}

/// Jain's fairness index: 1 if all shares are equal, `1 / n` if one has everything; 1 if there are no shares.
///
/// Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// Power: throughput over delay, in bits per second per second.
pub fn power(bits_per_s: f64, delay_s: f64) -> f64 {
    if delay_s > 0.0 { bits_per_s / delay_s } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, percentiles are off by more than a bucket's width.
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

    /// If this fails, a value is counted in the wrong bucket.
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

    /// If this fails, results of separate seeds do not add up.
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

    /// If this fails, the experiment's verdicts rest on wrong figures.
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
