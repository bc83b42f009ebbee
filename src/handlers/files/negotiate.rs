//! Proactive negotiation: `Accept-Encoding` for codings, `Accept` for the forms that we make ourselves.
//!
//! Neighbours: [`super::lookup`] opens sidecars in the order given here, [`mod@super::plan`] says `Vary`.

use super::fields::{Lines, weighted};

/// A content coding we can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// RFC 7932
    Brotli,
    /// RFC 8878
    Zstd,
    /// RFC 1952
    Gzip,
}

impl Coding {
    /// In the order we prefer them when the client does not care: smallest first.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// Its name in `Content-Encoding`.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// What the name of a sidecar file ends in.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// What a sidecar must begin with to be believed; brotli has no such mark.
    #[must_use]
    pub fn magic(self) -> &'static [u8] {
        match self {
            Coding::Brotli => b"",
            Coding::Zstd => b"\x28\xb5\x2f\xfd",
            Coding::Gzip => b"\x1f\x8b",
        }
    }

    fn matches(self, name: &[u8]) -> bool {
        // RFC 9110 §8.4.1: case-insensitive; §8.4.1.3: x-gzip is gzip.
        name.eq_ignore_ascii_case(self.token().as_bytes())
            || (self == Coding::Gzip && name.eq_ignore_ascii_case(b"x-gzip"))
    }
}

/// The codings that the client accepts and does not like less than the plain form, best first (RFC 9110 §12.5.3).
///
/// None without the field: any coding would be allowed, but the plain form is understood by all.
#[must_use]
pub fn codings(accept_encoding: &Lines<'_>) -> Vec<Coding> {
    let Weights { codings, identity, any } = Weights::of(accept_encoding);
    let least = identity.unwrap_or(0).max(1);
    let mut accepted: Vec<(u16, Coding)> = Coding::ALL
        .iter()
        .zip(codings)
        .filter_map(|(coding, weight)| Some((weight.or(any)?, *coding)))
        .filter(|(weight, _)| *weight >= least)
        .collect();
    // Stable: our own order decides between equals.
    accepted.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    accepted.into_iter().map(|(_, coding)| coding).collect()
}

/// Whether the plain form is not acceptable: `identity;q=0`, or `*;q=0` without a word about identity
/// (RFC 9110 §12.5.3). Nobody sends that by accident.
#[must_use]
pub fn refuses_plain(accept_encoding: &Lines<'_>) -> bool {
    let Weights { identity, any, .. } = Weights::of(accept_encoding);
    identity.or(any) == Some(0)
}

/// The weights of an `Accept-Encoding`, in thousandths; the first of a name counts.
struct Weights {
    codings: [Option<u16>; 3],
    identity: Option<u16>,
    any: Option<u16>,
}

impl Weights {
    fn of(accept_encoding: &Lines<'_>) -> Weights {
        let mut weights = Weights { codings: [None; 3], identity: None, any: None };
        for (name, weight) in accept_encoding.elements().filter_map(weighted) {
            let place = if name == b"*" {
                &mut weights.any
            } else if name.eq_ignore_ascii_case(b"identity") {
                &mut weights.identity
            } else if let Some(index) = Coding::ALL.iter().position(|coding| coding.matches(name)) {
                &mut weights.codings[index]
            } else {
                continue;
            };
            *place = place.or(Some(weight));
        }
        weights
    }
}

/// The forms of a body that we make ourselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Html,
    /// For programs.
    Json,
    /// For terminals.
    Plain,
}

impl Form {
    /// Its media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Form::Html => "text/html; charset=utf-8",
            Form::Json => "application/json",
            Form::Plain => "text/plain; charset=utf-8",
        }
    }

    fn ranges(self) -> [&'static str; 2] {
        match self {
            Form::Html => ["text/html", "text/*"],
            Form::Json => ["application/json", "application/*"],
            Form::Plain => ["text/plain", "text/*"],
        }
    }
}

/// The offered form that the client likes best; the earlier one among equals, the first if it likes none.
#[must_use]
pub fn form(accept: &Lines<'_>, offered: &[Form]) -> Form {
    let mut best = (0, offered.first().copied().unwrap_or(Form::Plain));
    for form in offered {
        let weight = weight_of(accept, *form);
        if weight > best.0 {
            best = (weight, *form);
        }
    }
    best.1
}

/// The client names HTML itself, as a browser does that wants a page; `*/*` alone is a script or a tool.
#[must_use]
pub fn wants_page(accept: &Lines<'_>) -> bool {
    let is_html = |name: &[u8]| name.eq_ignore_ascii_case(b"text/html");
    accept.elements().filter_map(weighted).any(|(name, weight)| weight > 0 && is_html(name))
}

/// The most specific range that covers the form gives its weight (RFC 9110 §12.5.1); everything without `Accept`.
fn weight_of(accept: &Lines<'_>, form: Form) -> u16 {
    if !accept.is_present() {
        return 1000;
    }
    let [exact, group] = form.ranges();
    for range in [exact, group, "*/*"] {
        let is_it = |name: &[u8]| name.eq_ignore_ascii_case(range.as_bytes());
        if let Some((_, weight)) = accept.elements().filter_map(weighted).find(|(name, _)| is_it(name)) {
            return weight;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Brotli, Gzip, Zstd};

    fn of(value: &str) -> Vec<Coding> {
        codings(&Lines::One(value.as_bytes()))
    }

    /// RFC 9110 §12.5.3
    #[test]
    fn codings_in_the_order_of_the_client() {
        assert_eq!(codings(&Lines::Absent), []);
        let table: [(&str, &[Coding]); 15] = [
            ("", &[]),
            ("gzip, deflate, br, zstd", &[Brotli, Zstd, Gzip]),
            ("gzip", &[Gzip]),
            ("x-gzip", &[Gzip]),
            ("GZIP", &[Gzip]),
            ("gzip;q=1.0, br;q=0.5", &[Gzip, Brotli]),
            ("gzip;q=0", &[]),
            ("*", &[Brotli, Zstd, Gzip]),
            ("*;q=0.1, gzip", &[Gzip, Brotli, Zstd]),
            ("br;q=0, *", &[Zstd, Gzip]),
            ("*;q=0", &[]),
            ("identity", &[]),
            ("identity, gzip;q=0.5", &[]),
            ("identity;q=0.5, gzip;q=0.5", &[Gzip]),
            ("gzip;q=bad, br", &[Brotli]),
        ];
        for (value, wanted) in table {
            assert_eq!(of(value), wanted, "{value}");
        }
        let lines: Lines<'_> = [&b"deflate"[..], b"gzip"].into_iter().collect();
        assert_eq!(codings(&lines), [Gzip]);
    }

    /// RFC 9110 §12.5.3
    #[test]
    fn who_refuses_the_plain_form() {
        assert!(!refuses_plain(&Lines::Absent));
        for value in ["identity;q=0", "*;q=0", "gzip, identity;q=0.000", "br;q=0.1, *;q=0", "IDENTITY;Q=0, *"]
        {
            assert!(refuses_plain(&Lines::One(value.as_bytes())), "{value}");
        }
        for value in ["", "gzip", "identity;q=0.001", "*;q=0, identity", "*", "gzip;q=0", "identity;q=x"] {
            assert!(!refuses_plain(&Lines::One(value.as_bytes())), "{value}");
        }
    }

    /// RFC 9110 §12.5.1
    #[test]
    fn forms_by_the_most_specific_range() {
        let offered = [Form::Html, Form::Json];
        let table = [
            ("*/*", Form::Html),
            ("application/json", Form::Json),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Form::Html),
            ("text/*;q=0.5, application/*", Form::Json),
            ("text/html;q=0, */*", Form::Json),
            ("image/png", Form::Html),
        ];
        for (value, wanted) in table {
            assert_eq!(form(&Lines::One(value.as_bytes()), &offered), wanted, "{value}");
        }
        assert_eq!(form(&Lines::Absent, &offered), Form::Html);
        assert!(wants_page(&Lines::One(b"text/html,*/*;q=0.8")));
        assert!(!wants_page(&Lines::One(b"*/*")) && !wants_page(&Lines::One(b"text/html;q=0")));
    }
}
