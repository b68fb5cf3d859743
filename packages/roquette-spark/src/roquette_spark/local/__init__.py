"""Needs of a local Spark: a Java, a session, the doctor that says what is missing."""
