//! A form with files (`multipart/form-data`), read part by part while it arrives: what the handler holds is one chunk,
//! however long the file is. What is no form, malformed or too much is answered with 415, 400 or 413.
//!
//! ```sh
//! cargo run --example upload_form
//! ```

mod common;

use shardlet::{Exchange, Result, Router, ShutdownPlan, asynchronous, post};

/// A file is counted, as it could be written away; any other field is short and kept.
async fn upload(x: &mut Exchange) -> Result<()> {
    let mut form = x.multipart()?;
    while let Some(mut part) = form.next_part(x).await? {
        if let Some(filename) = part.filename().map(str::to_owned) {
            let mut length = 0;
            while let Some(bytes) = part.chunk(x).await? {
                length += bytes.len();
            }
            write!(x, "[{filename}: {length} bytes]")?;
        } else {
            let value = part.collect(x, 1024).await?;
            write!(x, "[{} = {}]", part.name(), String::from_utf8_lossy(&value))?;
        }
    }
    Ok(())
}

/// What a browser sends for a form with a text and a file.
fn form(file: &str) -> String {
    format!(
        "--edge\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nSummer\r\n\
         --edge\r\nContent-Disposition: form-data; name=\"picture\"; filename=\"sea.png\"\r\n\
         Content-Type: image/png\r\n\r\n{file}\r\n--edge--\r\n"
    )
}

fn main() {
    let (server, address) =
        common::serve(1, |_: &shards::Shard| Router::new().route("/upload", post(asynchronous(upload))));
    let ask = |content_type: &str, content: &str| {
        let length = content.len();
        common::answer(common::send(
            address,
            &format!(
                "POST /upload HTTP/1.1\r\nHost: example\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
                 Content-Length: {length}\r\n\r\n{content}"
            ),
        ))
    };
    let form_type = "multipart/form-data; boundary=edge";
    println!("form: {:?}", ask(form_type, &form(&"~".repeat(300_000))));
    println!("cut off: {}", ask(form_type, &form("")[..100]).0);
    println!("no form: {}", ask("text/plain", "Summer").0);
    println!("a long title: {}", ask(form_type, &form("").replace("Summer", &"Summer".repeat(200))).0);
    server.shutdown(ShutdownPlan::fast());
}
