//! actix-web with one worker.
use actix_web::{http::header, web, App, HttpResponse, HttpServer};

async fn hello() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain"))
        .insert_header((header::SERVER, "actix"))
        .body("Hello, World!")
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let root = std::env::var("ROOT").ok();
    HttpServer::new(move || {
        let app = App::new().route("/plaintext", web::get().to(hello));
        match &root {
            Some(r) => app.service(actix_files::Files::new("/", r)),
            None => app.service(actix_files::Files::new("/none", "/nonexistent")),
        }
    })
    .workers(1)
    .max_connections(100_000)
    .listen(common::listener(common::port()))?
    .run()
    .await
}
