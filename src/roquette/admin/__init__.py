"""What operators do, as typed operations that print nothing; the cli room renders them."""
