//! The values of one request field, over however many lines it came, and quality values.
//!
//! Neighbours: everything that reads a field. It copies nothing and knows no field by name.

/// The lines of one field. Nothing is allocated for none or one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lines<'a> {
    /// The field was not sent.
    #[default]
    Absent,
    /// One line: the value without the white space around it.
    One(&'a [u8]),
    /// Several lines, in order.
    Many(Vec<&'a [u8]>),
}

impl<'a> Lines<'a> {
    /// Adds a line.
    pub fn push(&mut self, line: &'a [u8]) {
        match self {
            Lines::Absent => *self = Lines::One(line),
            Lines::One(first) => *self = Lines::Many(vec![*first, line]),
            Lines::Many(lines) => lines.push(line),
        }
    }

    /// Was the field sent at all, even empty?
    #[must_use]
    pub fn is_present(&self) -> bool {
        !matches!(self, Lines::Absent)
    }

    /// The value if there is exactly one line: what a field that is no list needs.
    #[must_use]
    pub fn single(&self) -> Option<&'a [u8]> {
        match self {
            Lines::One(value) => Some(trim(value)),
            _ => None,
        }
    }

    /// The lines, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        let (one, many): (Option<&'a [u8]>, &[&'a [u8]]) = match self {
            Lines::Absent => (None, &[]),
            Lines::One(value) => (Some(value), &[]),
            Lines::Many(values) => (None, values),
        };
        one.into_iter().chain(many.iter().copied()).map(trim)
    }

    /// The members of a list without quoted commas, over all lines; empty members are dropped
    /// (RFC 9110 §5.6.1.2).
    pub fn elements(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.iter()
            .flat_map(|line| line.split(|octet| *octet == b','))
            .map(trim)
            .filter(|part| !part.is_empty())
    }
}

impl<'a> FromIterator<&'a [u8]> for Lines<'a> {
    fn from_iter<T: IntoIterator<Item = &'a [u8]>>(lines: T) -> Self {
        let mut lines = lines.into_iter();
        let Some(first) = lines.next() else { return Lines::Absent };
        match lines.next() {
            None => Lines::One(first),
            Some(second) => Lines::Many([first, second].into_iter().chain(lines).collect()),
        }
    }
}

/// A list member with its weight: `gzip;q=0.5` is `(b"gzip", 500)`. Without weight 1000; `None` if the weight is
/// no qvalue (RFC 9110 §12.4.2). Other parameters are passed over.
#[must_use]
pub fn weighted(element: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = element.split(|octet| *octet == b';').map(trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let mut weight = 1000;
    for parameter in parts {
        if let [b'q' | b'Q', b'=', value @ ..] = parameter {
            weight = quality(value)?;
        }
    }
    Some((name, weight))
}

/// A qvalue in thousandths: `"0" [ "." 0*3DIGIT ]` or `"1" [ "." 0*3"0" ]` (RFC 9110 §12.4.2).
fn quality(value: &[u8]) -> Option<u16> {
    let (whole, fraction) = match value {
        [whole] => (*whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
        _ => return None,
    };
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        thousandths = thousandths * 10 + u16::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(1000),
        _ => None,
    }
}

/// Without the optional white space around it (RFC 9110 §5.6.3: SP and HTAB alone).
#[must_use]
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_none_one_and_several() {
        let of =
            |lines: &[&'static str]| lines.iter().map(|line| line.as_bytes()).collect::<Lines<'static>>();
        assert_eq!(of(&[]), Lines::Absent);
        assert_eq!(of(&[" a "]).single(), Some(&b"a"[..]));
        assert_eq!(of(&["a", "b"]).single(), None);
        let members: Vec<_> = of(&["a, ,b", "", ",c,"]).elements().map(<[u8]>::to_vec).collect();
        assert_eq!(members, [b"a", b"b", b"c"]);
    }

    /// RFC 9110 §12.4.2
    #[test]
    fn weights() {
        let good: [(&str, u16); 7] = [
            ("gzip", 1000),
            ("gzip;q=1", 1000),
            ("gzip ; Q=0.5", 500),
            ("gzip;q=0.", 0),
            ("gzip;q=1.000", 1000),
            ("gzip;a=b;q=0.001", 1),
            ("gzip;q=0", 0),
        ];
        for (text, weight) in good {
            assert_eq!(weighted(text.as_bytes()), Some((&b"gzip"[..], weight)), "{text}");
        }
        for bad in [
            "",
            ";q=1",
            "gzip;q=",
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=-1",
            "gzip;q=.5",
            "a;q=x",
        ] {
            assert_eq!(weighted(bad.as_bytes()), None, "{bad}");
        }
    }
}
