//! Command lines of `--name value` pairs.

use std::collections::BTreeMap;
use std::str::FromStr;

/// The `--name value` pairs of a command line.
#[derive(Debug, Default)]
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// Reads `--name value` pairs. A name that is not in `known`, or one without a value, is an error.
    pub fn parse(args: impl Iterator<Item = String>, known: &[&str]) -> Result<Self, String> {
        let mut options = BTreeMap::new();
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            let Some(name) = arg.strip_prefix("--").filter(|name| known.contains(name)) else {
                return Err(format!("`{arg}` is not an option; there are: --{}", known.join(" --")));
            };
            let Some(value) = args.next() else {
                return Err(format!("`{arg}` needs a value"));
            };
            options.insert(name.to_owned(), value);
        }
        Ok(Self(options))
    }

    /// The value of an option, if present. A value that does not parse as `T` is an error.
    pub fn optional<T: FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("`--{name} {value}` is not a value that it takes"))
    }

    /// The value of an option, or `default`.
    pub fn or<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        Ok(self.optional(name)?.unwrap_or(default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned), &["listen", "in-flight"])
    }

    #[test]
    fn missing_options_use_defaults() {
        // If this failed, the programs would ignore options.
        let options = parse("--in-flight 7").unwrap();
        assert_eq!(options.or("in-flight", 1), Ok(7));
        assert_eq!(options.or("listen", "here".to_owned()), Ok("here".to_owned()));
    }

    #[test]
    fn bad_option_is_refused() {
        // If this failed, a mistyped option would start a run with other settings than intended.
        assert!(parse("--inflight 7").unwrap_err().contains("there are: --listen --in-flight"));
        assert!(parse("--listen").unwrap_err().contains("needs a value"));
        assert!(parse("--in-flight many").unwrap().or("in-flight", 1).is_err());
    }
}
