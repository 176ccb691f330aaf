"""Small measurements that decide one number each."""
