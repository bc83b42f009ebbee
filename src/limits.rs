//! Every limit of the server in one place: unit, default, reason.
//!
//! All parts may import this file; it imports nothing. It does not measure and it does not enforce: the part that
//! owns the bytes or the timer does. Relations between limits are checked when the defaults are compiled and when a
//! configuration is loaded (`Limits::validate`).

use core::fmt;

/// The largest head that offsets of 16 bits can describe (`http1::head`), with an empty line before it.
pub const HEAD_BYTES_CEILING: usize = u16::MAX as usize - 2;

/// Limits of one listener. `Copy`, so that each shard keeps its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request line without its CRLF; 414 beyond it. RFC 9112 §3 asks for at least 8000.
    pub request_line_bytes_max: usize,
    /// Bytes of a method; 501 and close beyond it. The longest registered one has 17 (UPDATEREDIRECTREF).
    pub method_bytes_max: usize,
    /// Bytes of a whole head, from the first byte of the request line to its empty line; 431 beyond it.
    pub head_bytes_max: usize,
    /// Field lines of one head; 431 beyond it. Browsers send about 20; a table of 100 stays in the first-level cache.
    pub fields_max: usize,
    /// Bytes of a host without its port. A DNS name has at most 253 (RFC 1035 §2.3.4).
    pub host_bytes_max: usize,
    /// Bytes of request content unless the route says otherwise; 413 beyond it.
    pub body_bytes_max: u64,
    /// Bytes of chunk extensions on one chunk-size line. RFC 9112 §7.1.1: a recipient ought to limit them.
    pub chunk_extension_bytes_max: usize,
    /// Bytes of chunk extensions in excess of chunk data in one body: small chunks with long extensions are an attack.
    pub chunk_overhead_bytes_max: u64,
    /// Bytes of a trailer section; 431 beyond it.
    pub trailer_bytes_max: usize,
    /// Field lines of a trailer section; 431 beyond it.
    pub trailer_fields_max: usize,

    /// Milliseconds from accept (or from the first byte on a reused connection) to the end of the head (slowloris).
    pub head_timeout_ms: u64,
    /// Milliseconds in which a body may begin slowly before progress is demanded.
    pub body_grace_ms: u64,
    /// Milliseconds of one window of body progress.
    pub body_progress_window_ms: u64,
    /// Bytes that a body must advance in each window.
    pub body_progress_bytes_min: u64,
    /// Milliseconds of one window of write progress.
    pub write_progress_window_ms: u64,
    /// Bytes that the peer must take in each window while output waits.
    pub write_progress_bytes_min: u64,
    /// Milliseconds a connection may rest between two requests.
    pub idle_timeout_ms: u64,
    /// Milliseconds in which a tunnel that CONNECT opened may carry no byte either way: what it leads to is forgotten by
    /// routers on the path sometime, and then neither end hears of the other (RFC 5382 §5: two hours).
    pub tunnel_idle_timeout_ms: u64,

    /// Requests on one connection, then it is closed: leaks and unfair placement end sometime.
    pub requests_per_connection_max: u32,
    /// Requests of one connection in flight; reading pauses there (a pipelining flood).
    pub pipelined_requests_max: u16,
    /// Bytes of an unread request body that are read and thrown away to keep the connection.
    pub drain_bytes_max: u64,
    /// Milliseconds of a lingering close: the peer must be able to read the last answer before a reset can destroy it
    /// (RFC 9112 §9.6).
    pub linger_timeout_ms: u64,
    /// Bytes thrown away during a lingering close.
    pub linger_bytes_max: u64,

    /// Bytes of encoded output of a connection beyond which no more is encoded: producers wait in their exchanges.
    pub output_high_water_bytes: usize,
    /// Tasks that may wait for one exchange; the sender gets `Full` beyond it.
    pub exchange_tasks_max: u32,
    /// Sleeps that one exchange may wait for at once; the next is refused.
    pub exchange_sleeps_max: u32,
    /// Bytes of one exchange's output at which its writer is told to wait.
    pub exchange_output_high_water_bytes: usize,
    /// Bytes of it at which the writer may go on.
    pub exchange_output_low_water_bytes: usize,
    /// Bytes of it beyond which a write fails: an answer made in one piece must fit.
    pub exchange_output_bytes_max: usize,
    /// Bytes of a request body that may wait for a slow reader; then the client waits.
    pub exchange_input_window_bytes: usize,
    /// Bytes of the receive buffer that a connection may hold undecoded; it must hold one whole head.
    pub input_bytes_max: usize,

    /// File descriptors kept back from connections: files, upstreams and reloads go on when the limit is reached.
    pub descriptors_reserved: u32,
    /// Messages in the inbox of a shard; the sender gets `Full` beyond it.
    pub inbox_messages_max: usize,
}

impl Limits {
    /// The defaults; `security.md` tests exactly these.
    pub const DEFAULT: Limits = Limits {
        request_line_bytes_max: 8 * 1024,
        method_bytes_max: 64,
        head_bytes_max: 32 * 1024,
        fields_max: 100,
        host_bytes_max: 255,
        body_bytes_max: 1024 * 1024,
        chunk_extension_bytes_max: 4 * 1024,
        chunk_overhead_bytes_max: 16 * 1024,
        trailer_bytes_max: 8 * 1024,
        trailer_fields_max: 32,
        head_timeout_ms: 10_000,
        body_grace_ms: 10_000,
        body_progress_window_ms: 10_000,
        body_progress_bytes_min: 1024,
        write_progress_window_ms: 30_000,
        write_progress_bytes_min: 1024,
        idle_timeout_ms: 60_000,
        tunnel_idle_timeout_ms: 600_000,
        requests_per_connection_max: 10_000,
        pipelined_requests_max: 16,
        drain_bytes_max: 256 * 1024,
        linger_timeout_ms: 2_000,
        linger_bytes_max: 1024 * 1024,
        output_high_water_bytes: 64 * 1024,
        exchange_tasks_max: 1024,
        exchange_sleeps_max: 1024,
        exchange_output_high_water_bytes: 64 * 1024,
        exchange_output_low_water_bytes: 16 * 1024,
        exchange_output_bytes_max: 16 * 1024 * 1024,
        exchange_input_window_bytes: 64 * 1024,
        input_bytes_max: 64 * 1024,
        descriptors_reserved: 32,
        inbox_messages_max: 1024,
    };

    /// Checks the relations between limits; the error names the one that does not hold.
    pub const fn validate(&self) -> Result<(), LimitConflict> {
        if self.head_bytes_max > HEAD_BYTES_CEILING {
            return Err(LimitConflict("head_bytes_max must not exceed 65533"));
        }
        // Line, its CRLF, and the empty line that ends the head.
        if self.request_line_bytes_max + 4 > self.head_bytes_max {
            return Err(LimitConflict("request_line_bytes_max must leave room in head_bytes_max"));
        }
        if self.request_line_bytes_max < 16
            || self.method_bytes_max == 0
            || self.fields_max == 0
            || self.pipelined_requests_max == 0
        {
            return Err(LimitConflict("a limit of zero would refuse every request"));
        }
        if self.requests_per_connection_max == 0 {
            return Err(LimitConflict("requests_per_connection_max must be at least 1"));
        }
        if self.trailer_bytes_max > HEAD_BYTES_CEILING {
            return Err(LimitConflict("trailer_bytes_max must not exceed 65533"));
        }
        if self.chunk_extension_bytes_max as u64 > self.chunk_overhead_bytes_max {
            return Err(LimitConflict("chunk_extension_bytes_max must not exceed chunk_overhead_bytes_max"));
        }
        if self.exchange_output_low_water_bytes >= self.exchange_output_high_water_bytes
            || self.exchange_output_high_water_bytes > self.exchange_output_bytes_max
        {
            return Err(LimitConflict(
                "exchange_output_low_water_bytes must be below exchange_output_high_water_bytes, and that not above exchange_output_bytes_max",
            ));
        }
        if self.exchange_sleeps_max == 0 {
            return Err(LimitConflict("a limit of zero would refuse every sleep"));
        }
        if self.exchange_tasks_max == 0 || self.exchange_input_window_bytes == 0 {
            return Err(LimitConflict("a limit of zero would refuse every task or all content"));
        }
        // One empty line may precede a head (RFC 9112 §2.2).
        if self.input_bytes_max < self.head_bytes_max + 2 {
            return Err(LimitConflict("input_bytes_max must hold a whole head"));
        }
        if self.linger_bytes_max < self.drain_bytes_max {
            return Err(LimitConflict("linger_bytes_max must not be below drain_bytes_max"));
        }
        if self.linger_timeout_ms == 0
            || self.head_timeout_ms == 0
            || self.idle_timeout_ms == 0
            || self.tunnel_idle_timeout_ms == 0
        {
            return Err(LimitConflict("a timeout of zero would close every connection"));
        }
        Ok(())
    }
}

// A default that contradicts another one does not compile.
const _: () = assert!(Limits::DEFAULT.validate().is_ok());

impl Default for Limits {
    fn default() -> Self {
        Limits::DEFAULT
    }
}

/// Limits of one form (`multipart/form-data`); its size as a whole is bounded by `body_bytes_max` or the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultipartLimits {
    /// Parts of one form; 413 beyond it. Each costs an allocation or three and a call of the handler.
    pub parts_max: u32,
    /// Bytes of the field lines of one part, kept until they are complete; 413 beyond it.
    pub header_bytes_max: usize,
    /// Bytes in front of the first boundary, and bytes behind the last one, that mean nothing; 413 beyond it. Browsers
    /// send none but a line end.
    pub margin_bytes_max: usize,
}

impl MultipartLimits {
    /// The defaults.
    pub const DEFAULT: MultipartLimits =
        MultipartLimits { parts_max: 1_000, header_bytes_max: 8 * 1024, margin_bytes_max: 8 * 1024 };
}

impl Default for MultipartLimits {
    fn default() -> Self {
        MultipartLimits::DEFAULT
    }
}

/// Two limits contradict each other; the text says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitConflict(pub &'static str);

impl fmt::Display for LimitConflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl core::error::Error for LimitConflict {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contradiction_is_named() {
        let limits = Limits { exchange_output_low_water_bytes: 64 * 1024, ..Limits::DEFAULT };
        assert!(limits.validate().unwrap_err().0.contains("exchange_output_low_water_bytes"));
        let limits = Limits { head_bytes_max: 70_000, ..Limits::DEFAULT };
        assert!(limits.validate().unwrap_err().0.contains("65533"));
    }

    /// RFC 9112 §3: "all HTTP senders and recipients support, at a minimum, request-line lengths of 8000 octets".
    #[test]
    fn the_request_line_default_is_what_the_rfc_asks() {
        const { assert!(Limits::DEFAULT.request_line_bytes_max >= 8000) };
    }
}
