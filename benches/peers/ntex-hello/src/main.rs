//! ntex with one worker, on its io_uring driver or on tokio.
use ntex::web::{self, App, HttpResponse, HttpServer};

async fn hello() -> HttpResponse {
    HttpResponse::Ok().header("Content-Type", "text/plain").header("Server", "ntex").body("Hello, World!")
}

#[ntex::main]
async fn main() -> std::io::Result<()> {
    HttpServer::new(async || App::new().service(web::resource("/plaintext").to(hello)))
        .workers(1)
        .maxconn(100_000)
        .backlog(4096)
        .bind(("127.0.0.1", common::port()))?
        .run()
        .await
}
