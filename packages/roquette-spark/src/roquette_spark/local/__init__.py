"""What a local Spark needs: a Java, a session, the doctor that says what is missing."""
