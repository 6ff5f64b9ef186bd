"""Events posted to addresses that subscribers gave."""
