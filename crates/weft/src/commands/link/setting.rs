//! The settings of an emulated link: options for both directions or for one, and words of a schedule.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::path::PathBuf;
use weft_control::units::{delay, rate, share};
use weft_engine::packet::impair::{Bursts, REORDER_DISTANCE_MAX};

/// A setting of a direction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Setting {
    Rate(u64),
    Trace(PathBuf),
    Queue(String),
    Delay(u64),
    Jitter(u64),
    KeepOrder(bool),
    Loss(f64),
    LossBursts(Bursts),
    Duplicate(f64),
    Corrupt(f64),
    Reorder(f64),
    ReorderGap(u32),
    ReorderDistance(u32),
}

/// The directions that a setting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Both,
    Up,
    Down,
}

/// The options of a link, in order of precedence: a setting of one direction overrides the setting of both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(pub(super) Vec<(Side, Setting)>);

/// A kind of setting.
struct SettingKind {
    /// Its names: for both directions, up and down.
    names: [&'static str; 3],
    /// The name of its value, and the parser.
    value: &'static str,
    parse: fn(&str) -> Result<Setting, String>,
    /// The help texts: for both directions, and for one.
    help: &'static str,
    short: [&'static str; 2],
    /// The options that it excludes.
    instead_of: Option<[&'static str; 3]>,
    /// It may change while the link runs.
    may_change: bool,
}

const SIDES: [Side; 3] = [Side::Both, Side::Up, Side::Down];

const KINDS: [SettingKind; 13] = [
    SettingKind {
        names: ["rate", "up-rate", "down-rate"],
        value: "RATE",
        parse: |text| rate(text).map(Setting::Rate),
        help: "Rate in bits per second: 15mbit, 1.5gbit; by default as fast as this machine",
        short: ["Rate up", "Rate down"],
        instead_of: Some(["trace", "up-trace", "down-trace"]),
        may_change: true,
    },
    SettingKind {
        names: ["trace", "up-trace", "down-trace"],
        value: "FILE",
        parse: |text| Ok(Setting::Trace(text.into())),
        help: "Send opportunities, in Mahimahi's format: each line is the millisecond of an opportunity to send 1500 \
               bytes",
        short: ["Trace up", "Trace down"],
        instead_of: None,
        may_change: false,
    },
    SettingKind {
        names: ["delay", "up-delay", "down-delay"],
        value: "TIME",
        parse: |text| delay(text).map(Setting::Delay),
        help: "One-way delay: 30ms, 500us",
        short: ["Delay up", "Delay down"],
        instead_of: None,
        may_change: true,
    },
    SettingKind {
        names: ["jitter", "up-jitter", "down-jitter"],
        value: "TIME",
        parse: |text| delay(text).map(Setting::Jitter),
        help: "Random extra one-way delay per packet, up to this; packets may overtake each other",
        short: ["Jitter up", "Jitter down"],
        instead_of: None,
        may_change: true,
    },
    SettingKind {
        names: ["keep-order", "up-keep-order", "down-keep-order"],
        value: "YES|NO",
        parse: |text| yes_or_no(text).map(Setting::KeepOrder),
        help: "Keep the order of packets: the jitter varies slowly, by half a millisecond per millisecond",
        short: ["Keep the order up", "Keep the order down"],
        instead_of: None,
        may_change: true,
    },
    SettingKind {
        names: ["loss", "up-loss", "down-loss"],
        value: "SHARE",
        parse: |text| share(text).map(Setting::Loss),
        help: "Independent random loss: 1%, 0.01",
        short: ["Loss up", "Loss down"],
        instead_of: Some(["loss-bursts", "up-loss-bursts", "down-loss-bursts"]),
        may_change: true,
    },
    SettingKind {
        names: ["loss-bursts", "up-loss-bursts", "down-loss-bursts"],
        value: "P,R,BAD,GOOD",
        parse: |text| bursts(text).map(Setting::LossBursts),
        help: "Losses in bursts, as netem's `loss gemodel`: probability per packet that a burst begins after it, and \
               that it ends; loss within a burst, by default 100%, and between bursts, by default 0%: 1%,25%",
        short: ["Losses in bursts up", "Losses in bursts down"],
        instead_of: None,
        may_change: true,
    },
    SettingKind {
        names: ["duplicate", "up-duplicate", "down-duplicate"],
        value: "SHARE",
        parse: |text| share(text).map(Setting::Duplicate),
        help: "Share of packets that arrive twice",
        short: ["Share of duplicates up", "Share of duplicates down"],
        instead_of: None,
        may_change: true,
    },
    SettingKind {
        names: ["corrupt", "up-corrupt", "down-corrupt"],
        value: "SHARE",
        parse: |text| share(text).map(Setting::Corrupt),
        help: "Share of packets with one flipped bit; checksums stay",
        short: ["Share of corrupted packets up", "Share of corrupted packets down"],
        instead_of: None,
        may_change: true,
    },
    SettingKind {
        names: ["reorder", "up-reorder", "down-reorder"],
        value: "SHARE",
        parse: |text| share(text).map(Setting::Reorder),
        help: "Share of packets that later ones overtake: delayed by a tenth of the delay more, at least 1 ms",
        short: ["Share of overtaken packets up", "Share of overtaken packets down"],
        instead_of: None,
        may_change: true,
    },
    SettingKind {
        names: ["reorder-gap", "up-reorder-gap", "down-reorder-gap"],
        value: "N",
        parse: |text| number(text, "a gap", u32::MAX).map(Setting::ReorderGap),
        help: "At most one of N consecutive packets is overtaken",
        short: ["Gap up", "Gap down"],
        instead_of: None,
        may_change: true,
    },
    SettingKind {
        names: ["reorder-distance", "up-reorder-distance", "down-reorder-distance"],
        value: "N",
        parse: |text| number(text, "a distance", REORDER_DISTANCE_MAX).map(Setting::ReorderDistance),
        help: "An overtaken packet waits until N later ones have passed it, at most 100 ms",
        short: ["Distance up", "Distance down"],
        instead_of: None,
        may_change: true,
    },
    SettingKind {
        names: ["queue", "up-queue", "down-queue"],
        value: "QUEUE",
        parse: |text| Ok(Setting::Queue(text.to_owned())),
        help: "A library queue, such as `codel` or `\"codel (target = '10 ms')\"`, or a file, whose last queue is \
               used; by default `fifo`",
        short: ["Queue up", "Queue down"],
        instead_of: None,
        may_change: false,
    },
];

/// Parses `key=value` of a schedule.
pub(super) fn of_schedule(word: &str) -> Result<(Side, Setting), String> {
    let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not like rate=10mbit"))?;
    let named = |kind: &'static SettingKind| {
        let nth = kind.names.iter().position(|name| *name == key)?;
        Some((SIDES[nth], kind))
    };
    let changing = || KINDS.iter().filter(|kind| kind.may_change);
    let Some((side, kind)) = changing().find_map(named) else {
        let names: Vec<_> = changing().map(|kind| kind.names[0]).collect();
        return Err(format!(
            "`{key}` is nothing that changes while a link runs: {} do, with up- or down- for one direction",
            names.join(", ")
        ));
    };
    (kind.parse)(value).map(|setting| (side, setting)).map_err(|why| format!("{key}: {why}"))
}

impl Args for Settings {
    fn augment_args(mut command: Command) -> Command {
        for at in 0..SIDES.len() {
            for kind in &KINDS {
                let name = kind.names[at];
                let help = if at == 0 { kind.help } else { kind.short[at - 1] };
                let arg =
                    Arg::new(name).long(name).value_name(kind.value).value_parser(kind.parse).help(help);
                let arg = match kind.instead_of {
                    Some(other) => arg.conflicts_with(other[at]),
                    None => arg,
                };
                let arg = match kind.names[0] {
                    "keep-order" => arg.num_args(0..=1).require_equals(true).default_missing_value("yes"),
                    _ => arg,
                };
                command = command.arg(arg);
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let settings_of = |(at, side): (usize, &Side)| {
            let side = *side;
            KINDS.iter().filter_map(move |kind| {
                matches.get_one::<Setting>(kind.names[at]).map(|setting| (side, setting.clone()))
            })
        };
        Ok(Self(SIDES.iter().enumerate().flat_map(settings_of).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Parses `yes` or `no`.
fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("it is yes or no".to_owned()),
    }
}

fn number(text: &str, what: &str, most: u32) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| format!("{what} is a number of packets, 1 at least and {most} at most"))
}

/// Parses the parameters of `loss gemodel`, `P,R,BAD,GOOD`, with netem's defaults.
fn bursts(text: &str) -> Result<Bursts, String> {
    let shares = text.split([',', ' ']).filter(|word| !word.is_empty()).map(share);
    let shares: Vec<f64> = shares.collect::<Result<_, _>>()?;
    let (&[begin], rest) = shares.split_first_chunk().ok_or("it is like 1%,25% or 1%,25%,100%,0%")?;
    let of = |nth: usize, default: f64| rest.get(nth).copied().unwrap_or(default);
    let bursts = Bursts { begin, end: of(0, 1.0 - begin), loss_bad: of(1, 1.0), loss_good: of(2, 0.0) };
    match rest.len() {
        0..=3 => Ok(bursts),
        n => Err(format!("it has four shares at most, and these are {}", n + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link would lose in other bursts than netem with the same numbers.
    #[test]
    fn loss_bursts_match_netem() {
        let of = |begin, end, loss_bad, loss_good| Ok(Bursts { begin, end, loss_bad, loss_good });
        assert_eq!(bursts("1%"), of(0.01, 0.99, 1.0, 0.0));
        assert_eq!(bursts("1% 25%"), of(0.01, 0.25, 1.0, 0.0));
        assert_eq!(bursts("0.01,0.25,0.5,0.1"), of(0.01, 0.25, 0.5, 0.1));
        for text in ["", "1%,2%,3%,4%,5%", "101%", "p"] {
            assert!(bursts(text).is_err(), "{text}");
        }
    }

    /// A word of a schedule would silently change another setting, or none.
    #[test]
    fn schedule_words_match_options() {
        assert_eq!(of_schedule("rate=10mbit"), Ok((Side::Both, Setting::Rate(10_000_000))));
        assert_eq!(of_schedule("up-keep-order=no"), Ok((Side::Up, Setting::KeepOrder(false))));
        assert_eq!(of_schedule("down-reorder-distance=3"), Ok((Side::Down, Setting::ReorderDistance(3))));
        for word in ["rate", "rate=fast", "queue=codel", "trace=x", "reorder-gap=0", "sideways-rate=1mbit"] {
            assert!(of_schedule(word).is_err(), "{word}");
        }
    }
}
