//! Weighted round robin: the order in which members get their turns.

/// The turns of one round, by index: each member as often as its weight, in lowest terms. The turns of a member with
/// weight w are at (2k + 1) / 2w of the round, so that they are evenly spread; with equal weights each has one, in
/// order.
///
/// ```
/// assert_eq!(weft_core::round_robin::by_weight(&[2, 1, 1]), [0, 1, 2, 0]);
/// assert_eq!(weft_core::round_robin::by_weight(&[7, 7]), [0, 1]);
/// ```
pub fn by_weight(weights: &[u32]) -> Vec<u32> {
    let divisor = weights.iter().fold(0, |a, b| greatest_common_divisor(a, *b)).max(1);
    let turns_of = |(at, weight): (usize, &u32)| {
        let weight = u64::from(weight / divisor);
        (0..weight).map(move |k| (2 * k + 1, weight, at as u32))
    };
    let mut turns: Vec<(u64, u64, u32)> = weights.iter().enumerate().flat_map(turns_of).collect();
    turns.sort_by(|(k, weight, at), (k_b, weight_b, at_b)| (k * weight_b, at).cmp(&(k_b * weight, at_b)));
    turns.into_iter().map(|(.., at)| at).collect()
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_spread_by_weight() {
        // If it failed, one member would get a burst of calls, and then none.
        for weights in [&[1, 1, 1][..], &[3, 1], &[5, 3, 2], &[100, 1, 99]] {
            let turns = by_weight(weights);
            for (at, weight) in weights.iter().enumerate() {
                let own = turns.iter().filter(|turn| **turn as usize == at).count();
                assert_eq!(own as u32, *weight, "{weights:?}");
                let window = turns.len().div_ceil(own) * 2;
                let doubled: Vec<u32> = turns.iter().chain(&turns).copied().collect();
                assert!(
                    doubled.windows(window).all(|part| part.contains(&(at as u32))),
                    "{weights:?}: {turns:?}"
                );
            }
        }
        assert_eq!(by_weight(&[]), []);
    }
}
