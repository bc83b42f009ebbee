//! The small bodies of answers that carry no file: errors and redirects.
//!
//! Nothing of the request is repeated in them, so nothing needs escaping and nothing is reflected.

use super::negotiate::Form;

/// The reason phrase of RFC 9110 §15 for the answers of this handler.
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        301 => "Moved Permanently",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ if status < 500 => "Error",
        _ => "Internal Server Error",
    }
}

/// The body for a status.
#[must_use]
pub fn render(status: u16, form: Form) -> Vec<u8> {
    let reason = reason(status);
    match form {
        Form::Html => format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width\">\n<title>{status} {reason}</title>\n<style>:root{{color-scheme:light \
             dark}}body{{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:30em;padding:0 1em}}</style>\n\
             <h1>{status}</h1>\n<p>{reason}\n</html>\n"
        ),
        Form::Json => format!("{{\"status\":{status},\"reason\":\"{reason}\"}}\n"),
        Form::Plain => format!("{status} {reason}\n"),
    }
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_names_the_status() {
        for status in [301, 400, 403, 404, 405, 406, 412, 416, 418, 500, 501, 503] {
            for form in [Form::Html, Form::Json, Form::Plain] {
                let body = String::from_utf8(render(status, form)).unwrap();
                assert!(body.contains(&status.to_string()) && body.contains(reason(status)), "{body}");
                assert!(body.ends_with('\n'));
            }
        }
        let html = String::from_utf8(render(404, Form::Html)).unwrap();
        assert!(html.contains("<style>:root{color-scheme:light dark}"), "{html}");
        let json: serde_json::Value = serde_json::from_slice(&render(404, Form::Json)).unwrap();
        assert_eq!(json["status"], 404);
    }
}
