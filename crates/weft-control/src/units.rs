//! Rates, times and shares as people write them.

use weft_api::RECORD_SECONDS_MAX;

/// The fastest link.
const RATE_MAX: f64 = 1e12;
/// The longest delay: a round trip to the moon is shorter, and packets on the way take memory.
const DELAY_S_MAX: f64 = 10.0;
/// The longest simulated time of a run: the length of a generated trace.
const SIMULATED_SECONDS_MAX: u64 = 3600;
/// The latest change of a schedule.
const DAY_SECONDS: u64 = 86_400;
/// Parses `15mbit` to bits a second.
pub fn rate(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 4] = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    let lower = text.trim().to_ascii_lowercase();
    let bits = number(lower.strip_suffix("/s").unwrap_or(&lower), &UNITS).map(f64::round);
    let bits = bits.filter(|bits| (1.0..=RATE_MAX).contains(bits));
    bits.map(|bits| bits as u64).ok_or_else(|| {
        let most = RATE_MAX / 1e9;
        format!("a rate is like 15mbit: bit, kbit, mbit or gbit, 1bit at least and {most}gbit at most")
    })
}

/// Parses `30ms` to nanoseconds.
pub fn delay(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 4] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let seconds = number(text.trim(), &UNITS).filter(|s| (0.0..=DELAY_S_MAX).contains(s));
    seconds.map(|seconds| (seconds * 1e9).round() as u64).ok_or_else(|| {
        format!("a delay is like 30ms: us, ms or s, not less than 0 and {DELAY_S_MAX} s at most")
    })
}

/// Parses `10s`, `1.5s` or `0s` since the start of a link, to nanoseconds.
pub fn since_begin(text: &str) -> Result<u64, String> {
    if number(text, &[("min", 60.0), ("ms", 1e-3), ("s", 1.0)]) == Some(0.0) {
        return Ok(0);
    }
    span_up_to(DAY_SECONDS, text)
}

/// Parses `10s` or `2min` to nanoseconds, up to the longest recording.
pub fn span(text: &str) -> Result<u64, String> {
    span_up_to(RECORD_SECONDS_MAX, text)
}

/// Parses `60s` or `10min` to nanoseconds, up to the longest simulation.
pub fn simulated_span(text: &str) -> Result<u64, String> {
    span_up_to(SIMULATED_SECONDS_MAX, text)
}

/// Parses a positive time with a unit, at most `seconds_max`. Returns nanoseconds.
fn span_up_to(seconds_max: u64, text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 3] = [("min", 60.0), ("ms", 1e-3), ("s", 1.0)];
    let seconds = number(text.trim(), &UNITS).filter(|s| *s > 0.0 && *s <= seconds_max as f64);
    seconds.map(|seconds| (seconds * 1e9).round() as u64).ok_or_else(|| {
        format!("a time is like 10s: ms, s or min, more than none and {seconds_max} s at most")
    })
}

/// Parses `1%` or `0.01` to a fraction of one.
pub fn share(text: &str) -> Result<f64, String> {
    let (digits, of) = text.trim().strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    let share = digits.trim().parse::<f64>().ok().map(|n| n / of).filter(|n| (0.0..=1.0).contains(n));
    share.ok_or_else(|| "a share is like 1% or 0.01, not less than 0 and 100% at most".to_owned())
}

fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (digits, unit) =
        units.iter().find_map(|(unit, of)| text.strip_suffix(unit).map(|digits| (digits.trim(), *of)))?;
    digits.parse::<f64>().ok().map(|n| n * unit)
}

/// Formats a rate: `15 Mbit/s`.
pub fn rate_text(bits_per_s: u64) -> String {
    match bits_per_s {
        0..1_000 => format!("{bits_per_s} bit/s"),
        1_000..1_000_000 => format!("{} kbit/s", rounded(bits_per_s as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} Mbit/s", rounded(bits_per_s as f64 / 1e6)),
        _ => format!("{} Gbit/s", rounded(bits_per_s as f64 / 1e9)),
    }
}

/// Rounds to two decimals.
pub fn rounded(n: f64) -> f64 {
    (n * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link would be a thousand times faster or longer than requested.
    #[test]
    fn units_parse_to_values() {
        assert_eq!(rate("15mbit"), Ok(15_000_000));
        assert_eq!(rate("1.5 Gbit/s"), Ok(1_500_000_000));
        assert_eq!(rate("64kbit"), Ok(64_000));
        assert_eq!(
            (delay("30ms"), delay("500us"), delay("1.5 s")),
            (Ok(30_000_000), Ok(500_000), Ok(1_500_000_000))
        );
        assert_eq!((share("1%"), share("0.25"), share("100 %")), (Ok(0.01), Ok(0.25), Ok(1.0)));
        for text in ["", "15", "fast", "-1mbit", "0bit", "1e99gbit", "nanmbit", "15mbyte"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["", "30", "-1ms", "11s", "nans", "1h"] {
            assert!(delay(text).is_err(), "{text}");
        }
        for text in ["", "101%", "-1%", "2", "nan", "%"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!(rate_text(15_000_000), "15 Mbit/s");
        assert_eq!(rate_text(1_234_567), "1.23 Mbit/s");
    }
}
