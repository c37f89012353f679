//! Synthetic traces like those of LTE links.

use weft_engine::packet::trace::Trace;

use super::portable_math::exponential;
use weft_core::rng::Rng;

/// A trace like that of an LTE link in a moving car, up to an hour long; the seed decides it.
///
/// Opportunities are a Poisson process. Its rate is a Brownian motion between 0 and `rate_max` per second, with a
/// standard deviation of 200 per second after one second. This is the model of Winstein, Sivaraman and Balakrishnan
/// ("Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks", NSDI 2013, section 3). At rate
/// 0 the link has an outage of 0.3 s on average, and recovers slowly. It is out for some 6 % of the time; in recordings
/// of such links it is 2 to 13 %.
pub fn like_lte(seed: u64, seconds: u32, rate_max: f64) -> Trace {
    const WANDERS: f64 = 200.0;
    const OUTAGE_S: f64 = 0.3;
    const COMES_BACK: f64 = 0.1;
    const STEP_S: f64 = 1e-3;
    const SECONDS_MAX: u32 = 3600;
    let mut rng = Rng::from_seed(seed);
    let period_ms = seconds.clamp(1, SECONDS_MAX) * 1000;
    let mut rate = rate_max * rng.unit();
    let mut is_out = false;
    let mut at_ms = Vec::with_capacity((f64::from(period_ms) * STEP_S * rate_max) as usize / 2);
    let mut until_next = exponential(&mut rng, 1.0);
    for ms in 0..period_ms {
        if is_out {
            is_out = rng.unit() >= STEP_S / OUTAGE_S;
            rate = COMES_BACK * rate_max;
            continue;
        }
        rate += WANDERS * STEP_S.sqrt() * rng.normal();
        if rate > rate_max {
            rate = 2.0 * rate_max - rate;
        }
        if rate <= 0.0 {
            is_out = true;
            continue;
        }
        until_next -= rate * STEP_S;
        while until_next <= 0.0 {
            at_ms.push(ms);
            until_next += exponential(&mut rng, 1.0);
        }
    }
    at_ms.push(period_ms);
    Trace::new(at_ms).expect("times go up, and the last is a second at least")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the experiment runs on links of another rate than it states, or on different links each time.
    #[test]
    fn trace_follows_seed_with_outages() {
        let trace = like_lte(1, 250, 1000.0);
        assert_eq!(trace, like_lte(1, 250, 1000.0));
        assert_ne!(trace, like_lte(2, 250, 1000.0));
        let mean: f64 = (0..20).map(|seed| like_lte(seed, 250, 1000.0).rate()).sum::<f64>() / 20.0;
        assert!((400.0..600.0).contains(&mean), "{mean}");
        let longest = |trace: &Trace| trace.at_ms().windows(2).map(|two| two[1] - two[0]).max().unwrap();
        assert!((0..20).any(|seed| longest(&like_lte(seed, 250, 1000.0)) > 1000));
    }
}
