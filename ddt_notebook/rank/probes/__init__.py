"""What a rank observes about itself while it runs."""
