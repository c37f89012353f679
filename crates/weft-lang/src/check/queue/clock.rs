//! Checks the cost of ON EVERY handlers that run for each partition.

use crate::check::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{QueueLevel, QueueMoment as Moment, QueuePartitions};

/// The maximum number of partition visits per second without a warning: at a few nanoseconds each, they take about a
/// tenth of a core.
const VISITS_PER_SECOND_MAX: u64 = 20_000_000;

/// Warns of handlers that visit more partitions per second than a core can handle.
pub(super) fn check(cx: &mut Cx<'_>, level: &QueueLevel) {
    let (Some((partitions, _)), handlers) = (&level.partitions, &level.handlers) else { return };
    let (QueuePartitions::Hash { n, .. } | QueuePartitions::Index { n }) = *partitions;
    for handler in handlers {
        let Moment::Every { interval_ns, each_partition: true } = handler.moment else { continue };
        let per_second = u128::from(n) * 1_000_000_000 / u128::from(interval_ns.max(1));
        if per_second <= VISITS_PER_SECOND_MAX.into() {
            continue;
        }
        let message = format!("{n} partitions cause {per_second} visits per second");
        let least_ns = (u64::from(n) * 1_000_000_000).div_ceil(VISITS_PER_SECOND_MAX);
        let help =
            format!("run it every '{} ms' or more, or have fewer partitions", least_ns.div_ceil(1_000_000));
        let diagnostic = Diagnostic::warning(code::QUEUE_CLOCK, message)
            .at(handler.span, "more than one core can handle")
            .with_note(
                "each partition that is active or holds packets runs the handler; all others are visited too",
            );
        cx.report(diagnostic.with_help(help));
    }
}
