//! Why a message is refused: status, metric label and one line of text for each reason.
//!
//! Every reason here ends the connection after its answer: once the framing of a message is in doubt, nothing that
//! follows on the connection can be trusted (RFC 9112 §2.2, §6.3). A request that is merely unwelcome (404, 405, 501)
//! is not a `Reject`; routing answers it and the connection goes on.

use core::fmt;

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident => $status:literal, $label:literal, $text:literal;)*) => {
        /// A reason to refuse a request and to close its connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reject { $($(#[$doc])* $name,)* }

        impl Reject {
            /// All reasons, in the order of their numbers: metrics make one counter of each.
            pub const ALL: &'static [Reject] = &[$(Reject::$name,)*];

            /// The status of the answer.
            pub const fn status(self) -> u16 {
                match self { $(Reject::$name => $status,)* }
            }

            /// The label of the counter, in snake case.
            pub const fn label(self) -> &'static str {
                match self { $(Reject::$name => $label,)* }
            }

            /// One line for a person; also the content of the answer.
            pub const fn text(self) -> &'static str {
                match self { $(Reject::$name => $text,)* }
            }
        }
    };
}

rejects! {
    /// A line of the head ends in LF without CR, or holds a CR without LF (RFC 9112 §2.2).
    BareLineBreak => 400, "bare_line_break", "a line must end in CRLF, and CR or LF must not stand alone";
    /// A control octet where none may be (RFC 9110 §5.5).
    ControlOctet => 400, "control_octet", "the head contains a control character";
    /// More than one empty line before the request line (RFC 9112 §2.2).
    LeadingEmptyLines => 400, "leading_empty_lines", "more than one empty line before the request line";
    /// The request line is not method SP target SP version (RFC 9112 §3).
    RequestLine => 400, "request_line", "the request line is malformed";
    /// The method is not a token (RFC 9110 §9.1).
    Method => 400, "method", "the method is not a token";
    /// A method longer than any that could be implemented (RFC 9112 §3: 501).
    MethodTooLong => 501, "method_too_long", "the method is too long";
    /// The target matches no form of RFC 9112 §3.2, or its form does not fit the method.
    Target => 400, "target", "the request target is malformed";
    /// The version does not match `HTTP/` DIGIT `.` DIGIT (RFC 9112 §2.3).
    Version => 400, "version", "the HTTP version is malformed";
    /// A well-formed version whose major number is not 1 (RFC 9110 §15.6.6).
    VersionUnsupported => 505, "version_unsupported", "only HTTP/1.0 and HTTP/1.1 are spoken here";
    /// The request line is longer than its limit (RFC 9112 §3: 414).
    RequestLineTooLong => 414, "request_line_too_long", "the request line is too long";
    /// The head is larger than its limit (RFC 6585 §5).
    HeadTooLarge => 431, "head_too_large", "the head is too large";
    /// More field lines than the limit (RFC 6585 §5).
    TooManyFields => 431, "too_many_fields", "the head has too many fields";
    /// A field name that is no token, is empty, or is followed by whitespace (RFC 9112 §5.1).
    FieldName => 400, "field_name", "a field name is malformed";
    /// A field line continued on the next one (RFC 9112 §5.2).
    FoldedLine => 400, "folded_line", "folded field lines are obsolete";
    /// A field value with an octet that it must not hold (RFC 9110 §5.5).
    FieldValue => 400, "field_value", "a field value is malformed";
    /// An HTTP/1.1 request without Host (RFC 9112 §3.2).
    HostMissing => 400, "host_missing", "the Host field is missing";
    /// Two Host lines (RFC 9112 §3.2).
    HostRepeated => 400, "host_repeated", "the Host field is repeated";
    /// Host is no uri-host with an optional port (RFC 9110 §7.2).
    HostInvalid => 400, "host_invalid", "the Host field is malformed";
    /// Content-Length is not one decimal number (RFC 9110 §8.6).
    ContentLength => 400, "content_length", "the Content-Length field is malformed";
    /// Content-Length is repeated, as lines or as a list (RFC 9112 §6.3).
    ContentLengthRepeated => 400, "content_length_repeated", "the Content-Length field is repeated";
    /// Content-Length and Transfer-Encoding in one message (RFC 9112 §6.1, §11.2).
    LengthAndEncoding => 400, "length_and_encoding", "Content-Length and Transfer-Encoding exclude each other";
    /// Transfer-Encoding is malformed, repeated, or does not end in chunked (RFC 9112 §6.3).
    TransferEncoding => 400, "transfer_encoding", "the Transfer-Encoding field is malformed";
    /// A transfer coding that is not chunked (RFC 9112 §6.1: 501).
    TransferCodingUnknown => 501, "transfer_coding_unknown", "only the chunked transfer coding is understood";
    /// Transfer-Encoding in an HTTP/1.0 message (RFC 9112 §6.1).
    TransferEncodingInHttp10 => 400, "transfer_encoding_in_http10", "HTTP/1.0 has no Transfer-Encoding";
    /// A CONNECT that announces content (RFC 9110 §9.3.6).
    ConnectContent => 400, "connect_content", "a CONNECT request has no content";
    /// An expectation other than 100-continue (RFC 9110 §10.1.1).
    Expectation => 417, "expectation", "the only expectation that can be met is 100-continue";
    /// The content is longer than its limit (RFC 9110 §15.5.14).
    BodyTooLarge => 413, "body_too_large", "the request content is too large";
    /// A chunk-size line that does not match the grammar (RFC 9112 §7.1).
    ChunkSize => 400, "chunk_size", "a chunk size is malformed";
    /// A chunk size that does not fit (RFC 9112 §7.1: "MUST anticipate potentially large hexadecimal numerals").
    ChunkSizeOverflow => 400, "chunk_size_overflow", "a chunk size is too large";
    /// A chunk extension that does not match the grammar (RFC 9112 §7.1.1).
    ChunkExtension => 400, "chunk_extension", "a chunk extension is malformed";
    /// Chunk extensions longer than their limit (RFC 9112 §7.1.1).
    ChunkExtensionTooLong => 400, "chunk_extension_too_long", "the chunk extensions are too long";
    /// Chunk data that is not followed by CRLF (RFC 9112 §7.1).
    ChunkEnd => 400, "chunk_end", "chunk data must be followed by CRLF";
    /// A trailer field that does not match the grammar (RFC 9112 §7.1.2).
    Trailer => 400, "trailer", "the trailer section is malformed";
    /// A trailer field that must not stand in a trailer section (RFC 9110 §6.5.1).
    TrailerForbidden => 400, "trailer_forbidden", "a field is not allowed in the trailer section";
    /// The trailer section is larger than its limit (RFC 6585 §5).
    TrailerTooLarge => 431, "trailer_too_large", "the trailer section is too large";
    /// The peer closed its side inside a head or a body (RFC 9112 §8).
    Truncated => 400, "truncated", "the request ended before it was complete";
    /// The head did not arrive in time (RFC 9110 §15.5.9).
    HeadTimeout => 408, "head_timeout", "the request head did not arrive in time";
    /// The body made no progress (RFC 9110 §15.5.9).
    BodyTimeout => 408, "body_timeout", "the request content did not arrive in time";
}

impl Reject {
    /// The number of reasons: the size of a table indexed by `index`.
    pub const COUNT: usize = Reject::ALL.len();

    /// A dense number below `COUNT`.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl core::error::Error for Reject {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_and_snake_case_and_statuses_are_errors() {
        for (index, reject) in Reject::ALL.iter().enumerate() {
            assert_eq!(reject.index(), index);
            assert!((400..=599).contains(&reject.status()), "{reject:?}");
            assert!(
                reject.label().bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
            );
            assert!(Reject::ALL[index + 1..].iter().all(|other| other.label() != reject.label()));
        }
    }
}
