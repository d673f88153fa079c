//! Published shapes that the shipped scenarios have to show on the model.

#[path = "shapes/parallelio.rs"]
mod parallelio;
