//! Which route a call takes: the method's pattern first, then the route's condition.

/// A pattern over method paths: `shop.Cart/Add`, `shop.Cart/*`, `shop.*`, `*`. A leading `/` is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodPattern(String);

impl MethodPattern {
    /// A pattern as the language writes it. A `*` stands for any run of characters.
    pub fn new(text: &str) -> Self {
        Self(text.trim_start_matches('/').to_owned())
    }

    /// Every method.
    pub fn any() -> Self {
        Self("*".to_owned())
    }

    /// Whether the path (`/shop.Cart/Add`) matches.
    pub fn matches(&self, path: &[u8]) -> bool {
        glob(self.0.as_bytes(), path.strip_prefix(b"/").unwrap_or(path))
    }

    /// The pattern's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Linear-time matching with one wildcard character: on a mismatch only the last `*` needs to take more.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
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
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern that matched too much would send calls through the wrong chain.
    #[test]
    fn patterns_match_whole_paths() {
        let check = |pattern: &str, path: &str| MethodPattern::new(pattern).matches(path.as_bytes());
        assert!(check("shop.Cart/*", "/shop.Cart/Add"));
        assert!(check("shop.Cart/Add", "/shop.Cart/Add"));
        assert!(check("*", "/any.Thing/At"));
        assert!(check("shop.*/Get", "/shop.Cart/Get"));
        assert!(!check("shop.Cart/Add", "/shop.Cart/AddAll"));
        assert!(!check("shop.Cart/*", "/shop.Carts/Add"));
        assert!(!check("", "/shop.Cart/Add"));
    }
}
