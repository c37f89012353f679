//! Sets of RPC methods, as a `METHOD` clause selects them: `'shop.Cart/*', 'shop.Stock/Get'` or `NOT 'shop.Admin/*'`.

use core::fmt;

/// Patterns of one [`MethodSet`].
pub const METHOD_PATTERNS_MAX: usize = 64;

/// A set of methods: those that match one of the patterns, or all others.
///
/// A pattern is a path without its leading slash, `shop.Cart/Add`; `*` stands for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodSet {
    patterns: Vec<String>,
    is_negated: bool,
}

impl MethodSet {
    /// Every method.
    pub fn all() -> Self {
        Self::of(["*"])
    }

    /// The methods that match one of these patterns. A leading `/` is ignored.
    pub fn of<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Self {
        let patterns = patterns.into_iter().map(|pattern| pattern.trim_start_matches('/').to_owned());
        Self { patterns: patterns.collect(), is_negated: false }
    }

    /// The complement of this set.
    #[must_use]
    pub fn negated(self) -> Self {
        Self { is_negated: !self.is_negated, ..self }
    }

    /// Whether the set contains a method; `path` is `shop.Cart/Add`, with or without a leading slash.
    pub fn contains(&self, path: &[u8]) -> bool {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        self.patterns.iter().any(|pattern| matches(pattern.as_bytes(), path)) != self.is_negated
    }

    /// Whether some method may be in both sets. It may also be true where several patterns together exclude all
    /// methods.
    pub fn meets(&self, other: &Self) -> bool {
        match (self.is_negated, other.is_negated) {
            (false, false) => self
                .patterns
                .iter()
                .any(|a| other.patterns.iter().any(|b| patterns_meet(a.as_bytes(), b.as_bytes()))),
            (false, true) => self.patterns.iter().any(|pattern| !other.excludes(pattern)),
            (true, false) => other.meets(self),
            (true, true) => !self.excludes("*") && !other.excludes("*"),
        }
    }

    /// Whether one pattern of a negated set matches everything that `pattern` matches: it then matches the text of the
    /// pattern itself.
    fn excludes(&self, pattern: &str) -> bool {
        self.patterns.iter().any(|excluded| matches(excluded.as_bytes(), pattern.as_bytes()))
    }
}

impl fmt::Display for MethodSet {
    /// Writes the set as in the language, without quotes: `shop.Cart/*, shop.Stock/Get`; `*` for all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_negated {
            f.write_str("NOT ")?;
        }
        for (at, pattern) in self.patterns.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{pattern}")?;
        }
        Ok(())
    }
}

/// Whether a pattern matches a whole text. On a mismatch only the last `*` takes one more character, so the worst-case
/// time is the product of the lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((after, taken)) = star {
            star = Some((after, taken + 1));
            p = after;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Whether some text matches both patterns.
fn patterns_meet(a: &[u8], b: &[u8]) -> bool {
    // `meets[j]` tells whether the rest of `a` and `b[j..]` share a text; rows go from the end of `a`.
    let mut meets: Vec<bool> = (0..=b.len()).map(|j| b[j..].iter().all(|byte| *byte == b'*')).collect();
    for i in (0..a.len()).rev() {
        let below = meets.clone();
        for j in (0..=b.len()).rev() {
            meets[j] = match (a[i], b.get(j)) {
                (b'*', None) => below[j],
                (_, None) => false,
                (b'*', Some(_)) => below[j] || meets[j + 1],
                (_, Some(b'*')) => meets[j + 1] || below[j],
                (x, Some(y)) => x == *y && below[j + 1],
            };
        }
    }
    meets[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern that matches too much would send calls through the wrong chain.
    #[test]
    fn pattern_matches_whole_paths() {
        let check = |pattern: &str, path: &str| MethodSet::of([pattern]).contains(path.as_bytes());
        for (pattern, path) in [
            ("shop.Cart/*", "/shop.Cart/Add"),
            ("shop.Cart/Add", "/shop.Cart/Add"),
            ("/shop.Cart/Add", "shop.Cart/Add"),
            ("*", "/any.Thing/At"),
            ("shop.*/Get", "/shop.Cart/Get"),
            ("*/A*d", "shop.Cart/Add"),
            ("a*b*c", "aXbXbc"),
        ] {
            assert!(check(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("shop.Cart/Add", "/shop.Cart/AddAll"),
            ("shop.Cart/A", "/shop.Cart/Add"),
            ("shop.Cart/*", "/shop.Carts/Add"),
            ("*x", "shop.Cart/Add"),
            ("", "/shop.Cart/Add"),
        ] {
            assert!(!check(pattern, path), "{pattern} {path}");
        }
    }

    /// A method that slips through NOT would pass a chain that excludes it.
    #[test]
    fn negated_set_contains_others() {
        let others = MethodSet::of(["a.A/*", "b.B/Get"]).negated();
        assert!(others.contains(b"/b.B/Put"));
        assert!(!others.contains(b"/a.A/Get") && !others.contains(b"/b.B/Get"));
        assert_eq!(others.to_string(), "NOT a.A/*, b.B/Get");
    }

    /// A miss would let two chains claim one call; a false hit would refuse a good program.
    #[test]
    fn sets_overlap_on_shared_methods() {
        let of = |patterns: &[&str]| MethodSet::of(patterns.iter().copied());
        let not = |patterns: &[&str]| of(patterns).negated();
        for (a, b, meet) in [
            (of(&["a/*"]), of(&["*"]), true),
            (of(&["a*c"]), of(&["ab*"]), true),
            (of(&["*x*"]), of(&["y*"]), true),
            (of(&["z", "a/b"]), of(&["a/b"]), true),
            (of(&["a/b", "a/d"]), of(&["a/c"]), false),
            (of(&["a/*"]), of(&["b/*"]), false),
            (of(&["a"]), of(&["ab"]), false),
            (of(&["a/b"]), not(&["a/*"]), false),
            (of(&["a/*"]), not(&["a/b"]), true),
            (of(&["a/*", "b/c"]), not(&["a/*"]), true),
            (not(&["a"]), not(&["b"]), true),
            (not(&["*"]), not(&["b"]), false),
        ] {
            assert_eq!(a.meets(&b), meet, "{a} and {b}");
            assert_eq!(b.meets(&a), meet, "{b} and {a}");
        }
    }
}
