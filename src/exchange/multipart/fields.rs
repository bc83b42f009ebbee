//! What stands at the head of a part and in the request's `Content-Type`: field lines, parameters, and the ways in which
//! clients write a file's name. It judges form and leaves meaning to the application.

use crate::error::{Error, Result};

/// The head of a part: what the client says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartHead {
    name: String,
    filename: Option<String>,
    fields: Vec<(String, Vec<u8>)>,
}

type Invalid = &'static str;

/// A name and its value, unquoted.
type Parameter<'a> = (&'a [u8], Vec<u8>);

impl PartHead {
    /// The name of the form's field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file's name as the client gives it, never to be trusted as a path. It may be empty: no file was chosen.
    pub fn filename(&self) -> Option<&str> {
        self.filename.as_deref()
    }

    /// The value of `Content-Type`, if it is text. None means `text/plain` (RFC 7578 §4.4).
    pub fn content_type(&self) -> Option<&str> {
        std::str::from_utf8(self.header("content-type")?).ok()
    }

    /// The value of the first field of this name, without surrounding blanks.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let (_, value) = self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// Reads the field lines, the last one without its line end.
    pub(super) fn parse(block: &[u8]) -> std::result::Result<PartHead, Invalid> {
        let fields = field_lines(block)?;
        let mut found = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-disposition"));
        let (Some((_, disposition)), None) = (found.next(), found.next()) else {
            // RFC 7578 §4.2: each part has one.
            return Err("a part of the form needs one Content-Disposition");
        };
        let (name, filename) = disposition_of(disposition)?;
        let head = PartHead { name, filename, fields };
        match head.header("content-transfer-encoding") {
            // RFC 7578 §4.7: deprecated; only those that change nothing are taken.
            Some(encoding) if !["7bit", "8bit", "binary"].iter().any(|known| is_same(encoding, known)) => {
                Err("a part of the form has a Content-Transfer-Encoding")
            }
            _ => Ok(head),
        }
    }
}

fn field_lines(block: &[u8]) -> std::result::Result<Vec<(String, Vec<u8>)>, Invalid> {
    let mut fields = Vec::new();
    let mut rest = block;
    while !rest.is_empty() {
        let end = memchr::memmem::find(rest, b"\r\n").unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 2..).unwrap_or_default();
        let colon = memchr::memchr(b':', line).ok_or("a part of the form has a line without a colon")?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // A folded line begins with a blank, which is no character of a name.
        if name.is_empty() || !name.iter().all(|&octet| is_token(octet)) {
            return Err("a part of the form has a field with an invalid name");
        }
        if value.iter().any(|&octet| octet.is_ascii_control() && octet != b'\t') {
            return Err("a part of the form has a control character in a field");
        }
        fields.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
    }
    Ok(fields)
}

/// Name and file name out of a `Content-Disposition`.
fn disposition_of(value: &[u8]) -> std::result::Result<(String, Option<String>), Invalid> {
    let (kind, mut parameters) = Parameters::after_type(value);
    if !is_same(kind, "form-data") {
        return Err("a part of the form is no form-data");
    }
    let (mut name, mut filename, mut extended) = (None, None, None);
    while let Some((key, value)) = parameters.next_parameter()? {
        let place = match () {
            () if is_same(key, "name") => &mut name,
            () if is_same(key, "filename") => &mut filename,
            () if is_same(key, "filename*") => &mut extended,
            () => continue,
        };
        let text = if is_same(key, "filename*") { extended_value(&value)? } else { form_value(value)? };
        if place.replace(text).is_some() {
            return Err("a part of the form has a parameter twice");
        }
    }
    Ok((name.ok_or("a part of the form has no name")?, filename.or(extended)))
}

/// Browsers write three characters of a name as percent triples and no others (HTML, "multipart/form-data encoding
/// algorithm"); a percent sign itself stays as it is.
fn form_value(value: Vec<u8>) -> std::result::Result<String, Invalid> {
    let text = String::from_utf8(value).map_err(|_| "a name in the form is not UTF-8")?;
    if !text.contains('%') {
        return Ok(text);
    }
    let text = text.replace("%22", "\"");
    Ok(text.replace("%0D", "\r").replace("%0d", "\r").replace("%0A", "\n").replace("%0a", "\n"))
}

/// RFC 8187 §3.2, which RFC 7578 §4.2 does not want and some clients send: taken where no plain name is.
fn extended_value(value: &[u8]) -> std::result::Result<String, Invalid> {
    const INVALID: Invalid = "an extended file name in the form is not UTF-8";
    let mut pieces = value.splitn(3, |&octet| octet == b'\'');
    let (Some(charset), Some(_language), Some(encoded)) = (pieces.next(), pieces.next(), pieces.next())
    else {
        return Err(INVALID);
    };
    let decoded = percent_encoding::percent_decode(encoded).decode_utf8().map_err(|_| INVALID)?;
    if is_same(charset, "utf-8") { Ok(decoded.into_owned()) } else { Err(INVALID) }
}

/// The boundary of a request's `Content-Type`.
pub(super) fn boundary(content_type: &[u8]) -> Result<String> {
    let (kind, mut parameters) = Parameters::after_type(content_type);
    if !is_same(kind, "multipart/form-data") {
        return Err(Error::UnsupportedMediaType);
    }
    let mut boundary = None;
    while let Some((key, value)) = parameters.next_parameter().map_err(Error::InvalidBody)? {
        if is_same(key, "boundary") && boundary.replace(value).is_some() {
            return Err(Error::InvalidBody("a form has two boundaries"));
        }
    }
    // What is no text is no boundary either: its octets are checked by whoever takes it.
    Ok(boundary.map(|octets| String::from_utf8_lossy(&octets).into_owned()).unwrap_or_default())
}

fn is_same(octets: &[u8], text: &str) -> bool {
    octets.eq_ignore_ascii_case(text.as_bytes())
}

/// RFC 9110 §5.6.2.
fn is_token(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}

/// `; name=value`, the value a token or quoted, read from the left.
struct Parameters<'a>(&'a [u8]);

impl<'a> Parameters<'a> {
    fn after_type(value: &'a [u8]) -> (&'a [u8], Self) {
        let end = memchr::memchr(b';', value).unwrap_or(value.len());
        (value[..end].trim_ascii(), Parameters(&value[end..]))
    }

    fn next_parameter(&mut self) -> std::result::Result<Option<Parameter<'a>>, Invalid> {
        const INVALID: Invalid = "a form has an invalid parameter";
        let mut rest = self.0.trim_ascii();
        while let Some(after) = rest.strip_prefix(b";") {
            rest = after.trim_ascii_start();
            if rest.is_empty() || rest.starts_with(b";") {
                continue;
            }
            let equals = memchr::memchr(b'=', rest).ok_or(INVALID)?;
            let (key, value) = (&rest[..equals], &rest[equals + 1..]);
            if key.is_empty() || !key.iter().all(|&octet| is_token(octet)) {
                return Err(INVALID);
            }
            let (value, after) = match value.strip_prefix(b"\"") {
                Some(quoted) => unquoted(quoted).ok_or(INVALID)?,
                None => {
                    let end = memchr::memchr(b';', value).unwrap_or(value.len());
                    (value[..end].trim_ascii_end().to_vec(), &value[end..])
                }
            };
            self.0 = after;
            return Ok(Some((key, value)));
        }
        self.0 = b"";
        if rest.is_empty() { Ok(None) } else { Err(INVALID) }
    }
}

/// What stands before the closing quote, and what behind it. A backslash hides a quote or a backslash and is itself
/// otherwise: browsers leave it alone, in paths of old ones above all; other clients quote with it.
fn unquoted(quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut at = 0;
    loop {
        match (*quoted.get(at)?, quoted.get(at + 1)) {
            (b'"', _) => return Some((value, &quoted[at + 1..])),
            (b'\\', Some(&octet @ (b'"' | b'\\'))) => {
                value.push(octet);
                at += 2;
            }
            (octet, _) => {
                value.push(octet);
                at += 1;
            }
        }
    }
}
